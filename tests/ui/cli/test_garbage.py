"""What was made before a command is no garbage, and is looked through by nobody while it runs."""

import gc

import pytest

from kept.ui.cli.main import settled


@pytest.mark.usefixtures("nothing_aside")
def test_what_is_there_is_put_aside_for_as_long_as_a_command_runs():
    before = gc.get_threshold()
    with settled():
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() != before
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("nothing_aside")
def test_what_another_has_put_aside_stays_there():
    gc.freeze()
    aside = gc.get_freeze_count()
    assert aside > 1000
    with settled():
        assert gc.get_freeze_count() <= aside
    # some may have gone by themselves meanwhile
    assert gc.get_freeze_count() > aside / 2
