"""Waiting for what will happen, in this process or in another."""

import time


def wait_until(happened, seconds=60.0):
    """Return as soon as `happened()` is true; that it never is shows after some seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it has not happened in {seconds:g} seconds")
        time.sleep(0.01)
