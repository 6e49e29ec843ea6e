"""Runs when Python starts below `paceline run`, before the script; must not import anything heavy.

It removes its own folder from the path, runs the user's `sitecustomize`, and in the launcher's ranks has the observer
attached once the script has imported torch. Every other process stays as it is.
"""

import os
import sys


def _leave_path() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.abspath(entry) != folder]
    os.environ.pop("PYTHONPATH", None)  # the processes that a rank starts are not observed
    if any(rest):
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)


def _is_rank() -> bool:
    agent, parent = os.environ.get("PACELINE_AGENT"), os.getppid()
    if not agent or "LOCAL_RANK" not in os.environ or "PACELINE_RINGS" not in os.environ:
        return False
    for _ in range(4):  # `--no-python` may put a shell in between
        if str(parent) == agent:
            return True
        try:
            with open(f"/proc/{parent}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return bool(os.environ.get("PACELINE_SPAWNED"))  # started by torch.multiprocessing in a rank


def _users_own() -> None:
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


_leave_path()
try:
    if _is_rank():
        from paceline.observe.torch_import import attach_after_torch

        attach_after_torch()
except Exception as error:  # noqa: BLE001  never the script's problem; the launcher reports it
    try:
        with open(f"{os.environ['PACELINE_RINGS']}/{os.environ.get('RANK', '0')}.not-observed", "w") as file:
            file.write(f"{type(error).__name__}: {error}")
    except OSError:
        pass
finally:
    _users_own()
