"""What tests of several folders share.

Helpers to import lie beside this file: `data` has small random data, `models` small models and
experts, `model_files` what a model file must keep, `kernel_cases` every kernel with its reference,
`reference` the paper's equations, `waiting` and `memory` what concerns other processes.
"""

import os
import signal

import pytest

pytest.register_assert_rewrite("model_files", "models")

from manygp.runtime.parallel import process_map  # noqa: E402
from manygp.training import experts as fitting  # noqa: E402
from patching import with_numbers  # noqa: E402


@pytest.fixture
def in_processes(monkeypatch):
    """All experts but the first two are fitted in processes; how many batches of them were."""
    sent = []

    def spy(function, items, n_jobs):
        sent.append(len(items))
        return process_map(function, items, n_jobs)

    with_numbers(monkeypatch, fitting, "FITTING", process_seconds=-1.0, first_experts=1)
    monkeypatch.setattr(fitting, "process_map", spy)
    return sent


@pytest.fixture
def interruptible():
    """Programs that a shell starts in the background ignore Ctrl-C, and pass that on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def unsynced(monkeypatch):
    """Thousands of files need not be on the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
