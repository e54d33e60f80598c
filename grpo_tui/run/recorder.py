"""What runs inside the training process: it writes the run's events and obeys requests to stop or to save.

    RunRecorder(run_folder).attach(trainer)     # before trainer.train()

Rank 0 writes `events.jsonl`, the other ranks `ranks/<k>.jsonl`. Nothing here can end a training: faults of the recorder
are written down once each (`recorder_error`) and swallowed. What it takes from the libraries beyond the public
callbacks is looked for first and told in the `begin` row under `hooks`, so a release that moved it costs that figure
and nothing else.
"""

import contextlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from grpo_tui.progress import groups
from grpo_tui.progress.events import EVENTS_FILE, VERSION, strict
from grpo_tui.rewards.advantages import Reward, weighted_sums
from grpo_tui.rewards.advantages import groups as in_groups
from grpo_tui.run import control as requests
from grpo_tui.run.begin import begin_row, weights_of
from grpo_tui.run.lines import Lines
from grpo_tui.run.peaks import Peaks

GO_ON, SAVE, STOP = 0, 1, 2
"""What the ranks agree on after each step; the largest wish of any rank counts."""

SPREADS_KEPT = 1024
"""Groups of a row whose spread is written; their share without signal always counts all."""

SLOW_SECONDS = 2.0
"""A phase that took longer in the last step is announced when it begins (`now`), so that a viewer can name it."""

RANK_SECONDS = 10.0
"""How often another rank writes its memory and its sign of life."""

_PHASES: Mapping[str, str] = {
    "transformers.generate": "generate",
    "transformers.generate_batch": "generate",
    "vLLM.generate": "generate",
    "sync_weights": "sync",
}
"""Names of TRL 1.16's profiling contexts to phases. Each reward function has a context of its own name."""


class RunRecorder:
    """Records one attempt at one run; see the module. `run` is the run's folder, which TRL has as `output_dir`."""

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self._run = Path(run)
        self._rank = 0
        self._file: Lines | None = None
        self._faults: set[str] = set()
        self._hooks: dict[str, bool] = {}
        self._undo: list[Callable[[], None]] = []
        self._trainer: Any = None
        self._signal = ""
        self._stopping = False
        self._ended = False
        self._step = 0
        self._step_began = 0.0
        self._seconds: dict[str, float] = {}
        self._last_seconds: dict[str, float] | None = None
        self._now = ""
        self._spreads: list[float] = []
        self._peaks: Peaks | None = None
        self._rank_told = -math.inf

    def attach(self, trainer: Any) -> None:
        """Follow `trainer`. Call it once, on every rank, before `trainer.train()`."""
        with self._safely("attach"):
            self._trainer = trainer
            self._rank = int(trainer.args.process_index)
            self._run.mkdir(parents=True, exist_ok=True)
            path = self._run / EVENTS_FILE
            if self._rank:
                path = self._run / "ranks" / f"{self._rank}.jsonl"
                path.parent.mkdir(exist_ok=True)
            self._failed_mark().unlink(missing_ok=True)
            self._file = Lines(path)
        for name, hook in (
            ("train", self._hook_train),
            ("signals", self._hook_signals),
            ("profiling", self._hook_profiling),
            ("rewards", self._hook_rewards),
            ("memory", self._hook_memory),
        ):
            self._hooks[name] = False
            with self._safely(name):
                self._hooks[name] = hook(trainer)
        with self._safely("callback"):
            from transformers import PrinterCallback  # noqa: TID251 - this is the training process

            trainer.remove_callback(PrinterCallback)  # it prints every row, rounded, into the log
            trainer.add_callback(_callback(self))

    # ------------------------------------------------------------------------------------------------- callbacks

    def on_train_begin(self, args: Any, state: Any) -> None:
        """Write what is being trained, and with what."""
        with self._safely("begin"):
            self._step = int(state.global_step)
            if self._rank == 0:
                row = begin_row(self._trainer, self._run, self._step, int(state.max_steps))
                devices = {"devices": self._peaks.devices()} if self._peaks else {}
                self._write("begin", sync=True, **row, hooks=dict(self._hooks), **devices)

    def on_step_begin(self, state: Any) -> None:
        """A step begins: its phases count from here."""
        self._step = int(state.global_step)
        self._seconds = {}
        self._step_began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any) -> None:
        """A step is done: write its phases, agree with the other ranks on going on, and do as agreed."""
        self._step = int(state.global_step)
        with self._safely("phase"):
            self._end_phases()
        wish: int = GO_ON
        asked: list[requests.Request] = []
        with self._safely("control"):
            wish, asked = self._wish()
        wish = self._agree(wish)  # whatever went wrong above: a rank that is missing here hangs the others
        with self._safely("obey"):
            self._obey(wish, asked, control)

    def on_log(self, logs: Mapping[str, Any]) -> None:
        """Write a row as TRL logged it: exact floats, non-finite ones by name."""
        with self._safely("log"):
            if self._rank:
                return
            if "train_runtime" not in logs and any(key.startswith("eval_") for key in logs):
                self._write("eval", logs=logs)
                return
            extra: dict[str, Any] = {}
            if self._spreads:
                share = groups.share_without_signal(self._spreads)
                spreads = [_short(value) for value in self._spreads[-SPREADS_KEPT:]]
                extra["groups"] = {"flat_share": share, "count": len(self._spreads), "spread": spreads}
                self._spreads = []
            if self._peaks:
                extra["memory"] = self._peaks.take_row()
            self._write("log", logs=logs, **extra)

    def on_save(self, state: Any) -> None:
        """A checkpoint is complete."""
        with self._safely("save"):
            if self._rank == 0:
                self._write("save", sync=True, checkpoint=f"checkpoint-{state.global_step}")

    # ----------------------------------------------------------------------------------------------------- hooks

    def _hook_train(self, trainer: Any) -> bool:
        """`trainer.train` writes how it ended, and lets every exception pass."""
        original = trainer.train

        def train(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self._finish("error", error)
                raise
            self._finish("stopped" if self._stopping and self._step < trainer.state.max_steps else "completed")
            return result

        trainer.train = train
        previous = sys.excepthook

        def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            # After train(): the final save may fail, and then the run has not ended well.
            self._finish("error", error)
            previous(kind, error, trace)

        sys.excepthook = report
        return True

    def _hook_signals(self, trainer: Any) -> bool:
        """SIGTERM and SIGINT stop after the current step with a checkpoint; they stay caught until the process ends."""
        if threading.current_thread() is not threading.main_thread():
            return False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if int(trainer.args.world_size) > 1:
            self._watch_for_failed_ranks()
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        already, self._signal = bool(self._signal), self._signal or name
        text = "already stopping after this step (SIGKILL ends at once)" if already else "stopping after this step"
        with contextlib.suppress(OSError):
            os.write(2, f"\n{name}: {text}\n".encode())

    def _watch_for_failed_ranks(self) -> None:
        """Let SIGTERM end this rank at once when another one has failed.

        A launcher then asks the rest to end, but they sit in a collective that never returns, where no Python handler
        runs. The interpreter still writes the signal's number to its wake-up descriptor, which a thread can read.
        """
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        kept = writer  # the descriptor must live as long as the process

        def watch() -> None:
            while kept and (data := reader.recv(64)):
                if signal.SIGTERM in data:
                    time.sleep(1.0)  # the failed rank may be writing
                    if any((self._run / "ranks").glob("*.failed")):
                        os._exit(128 + signal.SIGTERM)

        threading.Thread(target=watch, name="grpo-tui-signals", daemon=True).start()

    def _failed_mark(self) -> Path:
        """Stands as long as this rank has failed in the newest attempt."""
        return self._run / "ranks" / f"{self._rank}.failed"

    def _hook_profiling(self, trainer: Any) -> bool:
        """Listen to the durations that TRL measures and hands only to W&B, MLflow and trackio."""
        from trl.extras.profiling import ProfilingContext  # noqa: TID251 - this is the training process

        prefix = type(trainer).__name__ + "."
        names = tuple(map(str, trainer.reward_func_names))
        patched: Any = ProfilingContext
        enter, log_metrics = patched.__enter__, patched._log_metrics

        def phase_of(context: Any) -> str:
            name = str(context.name)
            if not name.startswith(prefix):  # contexts of helper objects lie inside the trainer's own
                return ""
            name = name[len(prefix) :]
            return f"reward:{name}" if name in names else _PHASES.get(name, "train" if name == "compute_loss" else "")

        def entered(context: Any) -> Any:
            with self._safely("phase"):
                phase = phase_of(context)
                if phase:
                    self._enter_phase(phase)
            return enter(context)

        def measured(context: Any, duration: float) -> Any:
            with self._safely("phase"):
                phase = phase_of(context)
                if phase and phase != "train":
                    self._seconds[phase] = self._seconds.get(phase, 0.0) + float(duration)
                    if self._peaks:
                        self._peaks.mark(phase)
            return log_metrics(context, duration)

        def undo() -> None:
            patched.__enter__, patched._log_metrics = enter, log_metrics

        patched.__enter__, patched._log_metrics = entered, measured
        self._undo.append(undo)
        return True

    def _hook_rewards(self, trainer: Any) -> bool:
        """See the gathered rewards of every generation, as `GRPOTrainer._calculate_rewards` returns them.

        TRL's own buffers (`_logs`) hold the last generation only and mix evaluation in.
        """
        original = getattr(trainer, "_calculate_rewards", None)
        if not callable(original):
            return False

        def calculate(*args: Any, **kwargs: Any) -> Any:
            rewards: Any = original(*args, **kwargs)
            with self._safely("groups"):
                if self._rank == 0 and trainer.model.training:
                    self._note_rewards(trainer, rewards.tolist())
            return rewards

        trainer._calculate_rewards = calculate
        return True

    def _note_rewards(self, trainer: Any, rewards: Sequence[Sequence[float]]) -> None:
        rows = [[None if math.isnan(reward) else reward for reward in row] for row in rewards]
        weights = weights_of(trainer)
        size = int(trainer.num_generations)
        if getattr(trainer, "multi_objective_aggregation", "") == "normalize_then_sum":
            # Each function is normalised within the group before they are summed: a group is flat when each of them is.
            alone = [
                [weight if k == j else 0.0 for k in range(len(weights))] for j, weight in enumerate(weights) if weight
            ]
            columns = [self._spreads_of(rows, only, size) for only in alone]
            self._spreads += [
                math.nan if any(map(math.isnan, part)) else max(part) for part in zip(*columns, strict=True)
            ]
        else:
            self._spreads += self._spreads_of(rows, weights, size)

    @staticmethod
    def _spreads_of(rows: Sequence[Sequence[Reward]], weights: Sequence[float], size: int) -> list[float]:
        return [groups.spread(part) for part in in_groups(weighted_sums(rows, weights), size)]

    def _hook_memory(self, trainer: Any) -> bool:
        if trainer.accelerator.device.type != "cuda":
            return False
        import torch  # noqa: TID251 - this is the training process

        # A single process may spread a model over several devices; one of many has its own.
        alone = int(trainer.args.world_size) == 1
        used = list(range(torch.cuda.device_count())) if alone else [torch.cuda.current_device()]
        self._peaks = Peaks(torch.cuda, used)
        return True

    # ---------------------------------------------------------------------------------------------------- phases

    def _enter_phase(self, phase: str) -> None:
        if self._peaks and phase != "train":
            self._peaks.mark("train")
        slow = self._last_seconds is None or self._last_seconds.get(phase, 0.0) > SLOW_SECONDS
        if slow and phase != self._now and self._rank == 0 and self._trainer.model.training:
            self._write("now", phase=phase)
        self._now = phase

    def _end_phases(self) -> None:
        whole = time.perf_counter() - self._step_began
        seconds = {**self._seconds, "train": max(0.0, whole - sum(self._seconds.values()))}
        self._last_seconds, self._seconds, self._now = seconds, {}, ""
        row: dict[str, Any] = {"seconds": {name: round(value, 6) for name, value in seconds.items()}}
        if self._peaks:
            self._peaks.mark("train")
            row["memory"] = self._peaks.take_phases()
        if self._rank == 0:
            self._write("phase", **row)
        elif time.monotonic() - self._rank_told > RANK_SECONDS:
            self._rank_told = time.monotonic()
            self._write("rank", rank=self._rank, memory=self._peaks.take_row() if self._peaks else {})

    # --------------------------------------------------------------------------------------------------- control

    def _wish(self) -> tuple[int, list[requests.Request]]:
        """What this rank was asked for: by a signal, and on rank 0 by the files in `control/`."""
        asked = requests.pending(self._run) if self._rank == 0 else []
        if self._signal or any(request.action == "stop" for request in asked):
            return STOP, asked
        return (SAVE if asked else GO_ON), asked

    def _agree(self, wish: int) -> int:
        """The largest wish of all ranks: one integer reduced a step, so that all of them leave after the same one.

        (A stop set on one rank alone hangs the rest in their next collective.)
        """
        try:
            import torch  # noqa: TID251 - this is the training process

            if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
                return wish
            number = torch.tensor([wish], dtype=torch.int32, device=self._trainer.accelerator.device)
            torch.distributed.all_reduce(number, op=torch.distributed.ReduceOp.MAX)
            return int(number.item())
        except Exception as error:  # noqa: BLE001 - the recorder never ends a training
            self._fault("agree", error)
            return GO_ON

    def _obey(self, wish: int, asked: Sequence[requests.Request], control: Any) -> None:
        if wish == GO_ON or self._stopping:
            return
        control.should_save = True
        if wish == STOP:
            self._stopping = control.should_training_stop = True
        if self._rank:
            return
        for request in asked:
            self._write("control", action=request.action, by=request.who)
            requests.done(request)
        if wish == STOP and not any(request.action == "stop" for request in asked):
            self._write("control", action="stop", by=self._signal or "signal on another rank")

    # --------------------------------------------------------------------------------------------------- writing

    def _write(self, kind: str, *, sync: bool = False, **data: Any) -> None:
        if self._file:
            row = {"v": VERSION, "t": time.time(), "kind": kind, "step": self._step, **data}
            self._file.append(json.dumps(strict(row), allow_nan=False), sync=sync)

    def _finish(self, reason: str, error: BaseException | None = None) -> None:
        """Write the end once; an error after a good end replaces it."""
        with self._safely("end"):
            for undo in self._undo:
                undo()
            self._undo = []
            if self._ended and error is None:
                return
            self._ended = True
            told = {} if error is None else {"error": f"{type(error).__name__}: {error}"[:20_000]}
            if self._trainer is not None:
                self._step = int(self._trainer.state.global_step)
            self._write("end", sync=True, reason=reason, **told)
            if error is not None and self._trainer is not None and int(self._trainer.args.world_size) > 1:
                self._failed_mark().parent.mkdir(exist_ok=True)
                self._failed_mark().touch()

    @contextlib.contextmanager
    def _safely(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the recorder never ends a training
            self._fault(where, error)

    def _fault(self, where: str, error: Exception) -> None:
        kind = f"{where}: {type(error).__name__}"
        if kind in self._faults:
            return
        self._faults.add(kind)
        with contextlib.suppress(Exception):
            print(f"grpo-tui recorder: {kind}: {error}", file=sys.stderr, flush=True)
            self._write("recorder_error", where=where, error=f"{type(error).__name__}: {error}"[:2000])


def _callback(recorder: RunRecorder) -> Any:
    from transformers import TrainerCallback  # noqa: TID251 - this is the training process

    class Callback(TrainerCallback):  # type: ignore[misc]  # transformers is Any to the type checker
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            recorder.on_train_begin(args, state)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            recorder.on_step_begin(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            recorder.on_step_end(args, state, control)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            recorder.on_log(logs or {})

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            recorder.on_save(state)

    return Callback()


def _short(value: float) -> float:
    """Six digits are enough for a spread, and keep a row of many groups short."""
    return value if not math.isfinite(value) or value == 0 else float(f"{value:.6g}")
