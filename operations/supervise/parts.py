"""What works on a pipeline in the process that keeps it in sync: made, stepped by one thread, and ended together."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import DiskFull, LogGap
from cdc.journal import after
from cdc.saying import Say
from operations.edits.file_watch import FileWatch
from operations.letters.watch import LetterWatch
from operations.losses.losses import Losses
from operations.push.webhooks import Webhooks
from operations.run.engine import Engine, warn_outdated
from operations.run.halting import Halting
from operations.run.source_watch import SourceWatch
from operations.schema.evolving import Evolving
from operations.standing.sending import sending_of
from operations.standing.watch import matching
from operations.state.accepted import Text
from operations.state.pausing import paused_lines
from operations.supervise.wanted import Wanted
from spark.running import Running

FORGETFUL = (
    "an older Headwater has applied this pipeline: a table that is renamed or replaced is noticed, but not remembered;"
    " run `headwater apply FILE` once"
)


@dataclass
class Parts:
    """What works on a pipeline. Take it by ``opened``, and close it.

    Attributes:
        engine: its flows.
        source: what watches the source; whoever has begun that ends it.
        halting: stops flows of tables whose changes are missing.
        evolving: follows tables that change.
        losses: makes caches again that have forgotten.
        edits: takes up the file that is applied; None for one who only catches up, with the file that he began with.
    """

    engine: Engine
    source: SourceWatch
    halting: Halting
    evolving: Evolving
    losses: Losses
    edits: FileWatch | None = None

    @classmethod
    def opened(cls, engine: Engine, source: SourceWatch, file: Path, taken: Text, wanted: Wanted) -> Parts:
        """Put the others beside an engine; it is closed if one of them can't be made, and its sinks are given back.

        Args:
            engine: what runs.
            source: what watches its source.
            file: the pipeline file's path.
            taken: the file as this process has read it.
            wanted: how the pipeline is to be run.

        Raises:
            StateError, OSError: what one of them keeps in the state folder can't be read or written.
        """
        pipeline, only, master = engine.pipeline, wanted.only, wanted.master
        with ExitStack() as made:
            made.callback(engine.close)
            halting = made.enter_context(closing(Halting(engine)))
            evolving = made.enter_context(closing(Evolving(pipeline, file, only, master)))
            edits: FileWatch | None = None
            # Who makes a lost cache again ends what the others build of it; edits' own word ends evolving's, too.
            losses = Losses(
                pipeline,
                file,
                only,
                master,
                let_go=lambda sink: edits.give_way(sink) if edits else evolving.let_go(sink),
            )
            made.callback(losses.close)
            if not wanted.until_caught_up:
                edits = FileWatch(
                    engine,
                    source,
                    losses,
                    taken,
                    only,
                    master,
                    let_go=evolving.let_go,
                    may_build=lambda sink: evolving.may_build(engine, sink),
                )
            made.pop_all()
        return cls(engine, source, halting, evolving, losses, edits)

    def warnings(self) -> list[str]:
        """What is not as it should be, as it begins; a line each."""
        engine = self.engine
        outdated = warn_outdated(engine.pipeline, engine.builds)
        wrong = [*outdated, *engine.refused.lines, *paused_lines(engine.pipeline, engine.paused)]
        lines: list[str] = [after("warning: ", line) for line in wrong]
        return [*lines, f"warning: {FORGETFUL}"] if self.source.forgetful else lines

    @contextmanager
    def beside(self, say: Say) -> Iterator[None]:
        """While it lasts, what needs no turn is at work in threads of its own: letters, webhooks, standing queries."""
        engine = self.engine
        with (
            LetterWatch(engine),
            Webhooks(lambda: (engine.pipeline, {build.sink for build in list(engine.builds)}), say, sending_of),
            matching(engine),
        ):
            yield

    def step(self, say: Say) -> str | None:
        """Let the engine follow the register; what keeps it from doing so now and not for ever."""
        engine, source, edits = self.engine, self.source, self.edits
        try:
            while source.news:
                say(source.news.popleft())
            for line in edits.step() if edits else ():
                say(line)
            for line in [*engine.follow(), *self.halting.follow(source.changed), *self.losses.step(engine)]:
                say(line)
            busy = {*self.losses.healing, *(edits.building if edits else ()), *engine.paused}
            for line in self.evolving.step(engine, source.changed, busy):
                say(line)
        except LogGap as error:  # ends this as what the source's watch finds does
            source.error = error
        except DiskFull as error:
            return error.what
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return f"{error.filename or 'engine.state_dir'}: {error.strerror}"
        return None

    @property
    def busy(self) -> bool:
        """Whether something is under way that sinks wait for."""
        return self.losses.busy or self.evolving.busy or self.engine.promotions.busy

    @property
    def waits(self) -> bool:
        """Whether something stands still for now: until `headwater apply`, as is said of it, or what it needs is back.

        It goes on in this process then.
        """
        return self.evolving.waits or self.halting.waits or self.engine.refused.waits

    @property
    def failed(self) -> list[Running]:
        """Flows that have failed, but for those that nobody reads any more."""
        running, former = self.engine.runner.running, self.evolving.former
        return [run for run in running if run.failed and run.flow.folder.parent not in former]

    def close(self) -> None:
        """End what was begun, the engine last; each of them, although another can't be."""
        with ExitStack() as last:
            for part in (self.engine, self.edits, self.losses, self.evolving, self.halting):
                if part is not None:
                    last.callback(part.close)
