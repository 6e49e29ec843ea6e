"""The environment of workers on CPUs."""

import contextlib
import os
import subprocess
import sys

import pytest

from paceline.launch.tuning import Setting, cpu_settings, describe, temporary_environment

GLIBC = {"system": "linux", "libc": "glibc"}


def names(settings):
    """The variables that would be set."""
    return {each.name for each in settings}


def test_an_untouched_environment_gets_one_thread_and_a_malloc_that_keeps():
    """All settings, each with its reason."""
    settings = cpu_settings({}, **GLIBC)

    values = {each.name: each.value for each in settings}
    assert values == {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": str(2**36), "MALLOC_MMAP_MAX_": "0"}
    assert all(each.why for each in settings)


def test_the_users_own_number_of_threads_stays():
    """OMP_NUM_THREADS is never overridden, and the allocator's settings do not depend on it."""
    settings = cpu_settings({"OMP_NUM_THREADS": "7"}, **GLIBC)

    assert names(settings) == {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_"}


@pytest.mark.parametrize(
    "chosen",
    [
        {"MALLOC_TRIM_THRESHOLD_": "1"},
        {"MALLOC_MMAP_THRESHOLD_": "1"},
        {"MALLOC_MMAP_MAX_": "1"},
        {"MALLOC_TOP_PAD_": "1"},
        {"MALLOC_ARENA_MAX": "2"},
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"},
        {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"},
        {"LD_PRELOAD": "/opt/a.so:/usr/lib/libtcmalloc_minimal.so.4"},
    ],
)
def test_any_choice_of_the_user_about_malloc_switches_ours_off_as_a_whole(chosen):
    """Half of the settings is slower than none, so they come together or not at all."""
    settings = cpu_settings(chosen, **GLIBC)

    assert names(settings) == {"OMP_NUM_THREADS"}


def test_tunables_that_are_not_about_malloc_do_not_matter():
    """Other parts of glibc are tuned through the same variable."""
    settings = cpu_settings({"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, **GLIBC)

    assert "MALLOC_MMAP_MAX_" in names(settings)


@pytest.mark.parametrize(("system", "libc"), [("linux", ""), ("linux", "musl"), ("darwin", ""), ("darwin", "glibc")])
def test_without_glibc_malloc_is_left_alone(system, libc):
    """The variables mean nothing to another C library."""
    assert names(cpu_settings({}, system=system, libc=libc)) == {"OMP_NUM_THREADS"}


def test_threads_and_allocator_can_each_be_left_alone():
    """A single worker keeps torch's own threads; accelerators keep malloc."""
    assert names(cpu_settings({}, threads=None, **GLIBC)) == {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_"}
    assert names(cpu_settings({}, allocator=False, **GLIBC)) == {"OMP_NUM_THREADS"}
    assert cpu_settings({}, threads=None, allocator=False, **GLIBC) == ()


def test_settings_are_shown_in_one_line():
    """As a shell would set them."""
    assert describe([Setting("A", "1", "x"), Setting("B", "2", "y")]) == "A=1 B=2"
    assert describe([]) == "none"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults of glibc's malloc")
def test_the_settings_spare_the_page_faults_of_memory_that_is_freed_and_taken_again():
    """Twenty times 40 MiB, written and freed: without the settings each time costs its 10,240 pages anew."""
    program = (
        "import ctypes, resource\n"
        "c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p\n"
        "c.malloc.argtypes = [ctypes.c_size_t]; c.free.argtypes = [ctypes.c_void_p]\n"
        "for _ in range(20):\n"
        "    p = c.malloc(40 << 20); ctypes.memset(p, 1, 40 << 20); c.free(p)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)\n"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    settings = {each.name: each.value for each in cpu_settings({})}
    if len(settings) == 1:
        pytest.skip("this machine has no glibc")

    without, with_settings = (
        int(subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout)
        for env in (plain, plain | settings)
    )

    assert without > 10 * 10_240
    assert with_settings < 2 * 10_240


def test_a_temporary_environment_is_undone(monkeypatch):
    """Variables that were added, changed and removed within the block, also after an exception."""
    for name, value in (("PL_CHANGED", "mine"), ("PL_REMOVED", "mine")):
        monkeypatch.setenv(name, value)
    before = dict(os.environ)

    with contextlib.suppress(KeyError), temporary_environment({"PL_ADDED": "1", "PL_CHANGED": "yours"}):
        assert (os.environ["PL_ADDED"], os.environ["PL_CHANGED"]) == ("1", "yours")
        del os.environ["PL_REMOVED"]
        os.environ["PL_LATER"] = "1"
        raise KeyError

    assert dict(os.environ) == before
