"""One expert: likelihood, posterior, leave-one-out, and the interface of trends."""
