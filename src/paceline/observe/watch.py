"""What all watches of a training process share: they begin, end, and keep their own failures to themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

Seen = Callable[[Any, tuple[Any, ...]], None]
"""Called with the result and the positional arguments of a watched function."""


class Watch:
    """Watches from `start` to `stop`, or as a context manager. The watched program must not feel it.

    Attributes:
        trouble: why watching ended early; empty while all is well.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Watch from now on."""
        raise NotImplementedError

    def stop(self) -> None:
        """Watch no more. What was seen stays."""
        while self._undo:
            self._undo.pop()()

    def _guarded(self, work: Callable[..., Any], *args: Any) -> None:
        """Call a function of our own within the watched program; what it raises ends the watching."""
        if self.trouble:
            return
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001  whatever it is, the watched program must not feel it
            self.trouble = f"{type(error).__name__}: {error}"

    def _spy(self, owner: Any, name: str, *, before: Seen | None = None, after: Seen | None = None) -> None:
        """Until `stop`, call functions of our own around each call of a function of `owner`.

        Args:
            owner: a class or a module.
            name: of its function.
            before: before(None, arguments) is called before it.
            after: after(result, arguments) is called after it.
        """
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                self._guarded(before, None, args)
            result = original(*args, **kwargs)
            if after is not None:
                self._guarded(after, result, args)
            return result

        setattr(owner, name, watched)
        self._undo.append(lambda: setattr(owner, name, original))
