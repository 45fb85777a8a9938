"""The training loop: one for one process or many. Where it stands is one number, the step; the rest follows from it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from secondsight.data.loading.batches import Batch, BatchLoader, RowSource
from secondsight.data.loading.neighbours import Neighbours
from secondsight.errors import DataError, RunError
from secondsight.model import Origin
from secondsight.train import checkpoint, optimisers, resume, schedule, validation
from secondsight.train.assembly import RunParts
from secondsight.train.display import Display
from secondsight.train.health import Watch, check_finite, mean_cosine
from secondsight.train.interrupts import Interrupt, listening
from secondsight.train.kept_sums import keep_sums
from secondsight.train.resume import RunProgress
from secondsight.train.run_directory import MetricsLog, RunDirectory
from secondsight.train.step import Outcome, forward_backward, gather
from secondsight.train.tensorboard import Board


class Loop:
    """Trains, validates, saves. ``run`` returns whether the run is complete; it is not when it was interrupted."""

    def __init__(self, parts: RunParts, directory: RunDirectory, display: Display):
        self.parts, self.recipe, self.fabric = parts, parts.recipe, parts.fabric
        self.directory, self.display = directory, display
        self.progress = RunProgress()
        self.interrupt = Interrupt()
        self.watch = Watch(parts.loss)
        self.rates: dict[str, float] = {}  # of the last step, by parameter group
        self.norm = 0.0  # of the last step's gradient, before clipping
        self.loader = BatchLoader(
            parts.inputs.train,
            batches=parts.sampler,
            workers=parts.recipe.data.workers,
            substitute=True,
            pin_memory=parts.fabric.device.type == "cuda",
        )
        self.metrics = MetricsLog(directory.metrics, enabled=False)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.fabric.global_rank == 0

    @property
    def finished(self) -> bool:
        return self.progress.stopped or self.progress.step >= self.parts.total

    def run(self) -> bool:
        position = self.restore()
        self.keep_sums()
        board = Board(
            self.directory.path / "tensorboard",
            step=self.progress.step,
            enabled=self.first and self.recipe.train.tensorboard,
        )
        self.metrics = MetricsLog(self.directory.metrics, position=position, enabled=self.first, board=board)
        self.display.start(done=self.progress.step, total=self.parts.total, per_epoch=self.parts.steps_per_epoch)
        if not self.parts.inputs.validation:
            self.display.say("no classes are held out (validation.share = 0): best/ is the model after the last epoch")
        try:
            with listening() as self.interrupt, deterministic():
                if self.recipe.validation.at_start and self.progress.step == 0:
                    self._validate_start()
                if self.progress.step and not self.directory.has_best:
                    self._make_best_again()
                while not self.finished and not self._agreed(self.interrupt):
                    self._epoch(self.interrupt)
        finally:
            self.metrics.close()
            self.display.close()
            if self.loader.failures:
                self.display.warn(self.loader.failures.text(most=5))
                if loud := self.loader.failures.warning(len(self.parts.sets.train)):
                    self.display.warn(loud.removeprefix("WARNING: "))  # the display says it
        return self.finished

    def keep_sums(self) -> None:
        """Compute once what does not learn; after the weights are those that the run goes on with."""
        if keep_sums(self.parts, say=self.display.say):
            self.loader.rows = self.parts.inputs.train

    def _epoch(self, interrupt: Interrupt) -> None:
        """From where we are to the end of the epoch, or to an interruption."""
        parts, per_epoch = self.parts, self.parts.steps_per_epoch
        epoch, position = divmod(self.progress.step, per_epoch)
        if position == 0:
            self._teach_loss()
        self.turn_to(epoch, position)
        parts.network.train()
        parts.loss.train()
        since = time.perf_counter()
        with contextlib.closing(iter(self.loader)) as batches:  # pyright: ignore[reportArgumentType] it is a generator
            for batch in batches:
                outcome = self.step(batch, epoch)
                self._record(outcome, epoch, rate=self.recipe.batch / (time.perf_counter() - since))
                stop = self._agreed(interrupt)
                self._maybe_save(stop)
                if stop:
                    return
                since = time.perf_counter()

    def turn_to(self, epoch: int, position: int) -> None:
        """Put the sampler where the step says."""
        sampler = self.parts.sampler
        if isinstance(sampler, Neighbours):
            sampler.set_neighbours(self.parts.loss.neighbours.cpu().numpy())  # pyright: ignore[reportCallIssue]
        sampler.turn_to(epoch, position)

    def _teach_loss(self) -> None:
        """Some losses look at the whole training set before each epoch."""
        if not self.parts.loss.wants_embeddings:
            return
        z, indices = self.embed(self.parts.inputs.plain)
        labels = torch.tensor(self.parts.sets.train.require_labels(), device=z.device)[indices]
        self.parts.loss.on_epoch(zip(z.split(1024), labels.split(1024), strict=True))

    def step(self, batch: Batch, epoch: int) -> Outcome:
        """One update of the weights."""
        parts, step, t = self.parts, self.progress.step, self.recipe.train
        factor = schedule.factor(
            step, schedule=self.recipe.schedule, steps_per_epoch=parts.steps_per_epoch, total=parts.total
        )
        self.rates = optimisers.set_rates(parts.optimizer, factor)
        parts.optimizer.zero_grad(set_to_none=True)
        x = self.fabric.to_device(batch.images)
        labels, indices = self._whole(batch)
        outcome = forward_backward(
            self.fabric, parts.network, parts.loss, x.split(t.chunk or len(x)), labels, seed=(t.seed, step)
        )
        check_finite(outcome, images=parts.sets.train, batch=indices.tolist(), epoch=epoch, step=step)
        self.norm = float(
            torch.nn.utils.clip_grad_norm_(
                optimisers.trainable(parts.optimizer), self.recipe.optimizer.clip or float("inf")
            )
        )
        if not np.isfinite(self.norm):
            raise RunError(
                f"the gradient became {self.norm} at step {step} (epoch {epoch}), with a finite loss of "
                f"{outcome.loss:.4g}; nothing was updated with it: lower optimizer.lr or optimizer.clip"
            )
        parts.optimizer.step()
        if parts.ema is not None:
            parts.ema.update()
        self.progress.step += 1
        return outcome

    def _whole(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Labels and image numbers of the global batch."""
        if len(batch) * self.fabric.world_size != self.recipe.batch:
            raise DataError(
                f"a batch came with {len(batch) * self.fabric.world_size} of {self.recipe.batch} images, because no "
                f"image of one of its classes can be read; remove that class. {self.loader.failures.text(most=3)}"
            )
        assert batch.labels is not None
        both = torch.stack([batch.labels, batch.indices], dim=1).to(self.fabric.device)
        labels, indices = gather(self.fabric, both).unbind(1)
        return labels, indices

    def embed(self, *sources: RowSource) -> tuple[torch.Tensor, torch.Tensor]:
        """Un-normalised embeddings and the images' numbers."""
        return validation.embed(
            self.fabric,
            self.parts.network,
            sources,
            batch=self.recipe.train.chunk or 64,
            workers=self.recipe.data.workers,
        )

    def _record(self, outcome: Outcome, epoch: int, *, rate: float) -> None:
        step, lr = self.progress.step, next(iter(self.rates.values()))
        self.display.step(step=step, loss=outcome.loss, rate=rate, lr=lr)
        for words in self.watch.step(outcome, step=step):
            self._warn(words)
        if step % self.recipe.train.log_every == 0 or step == self.parts.total:
            self.metrics.write(
                "train",
                step=step,
                epoch=epoch,
                loss=outcome.loss,
                lr=self.rates,
                gradient_norm=self.norm,
                mean_cosine=mean_cosine(outcome.z),
                images_per_second=round(rate, 2),
            )
        if step % self.parts.steps_per_epoch == 0:
            if not self.parts.inputs.validation:
                self.display.say(f"epoch {epoch + 1} of {self.recipe.train.epochs}: loss {outcome.loss:.4f}")
            self._maybe_validate(epoch + 1)

    def _validate_start(self) -> None:
        """The figures of the model as it was initialised, the first ``best/``: training may bring nothing."""
        if self.parts.inputs.validation:
            figures, _ = self._validate(self.parts.inputs.validation)
            self.progress.best, self.progress.best_step = figures[self.recipe.validation.metric], 0
            self._save_best()
            self.metrics.write("validation", step=0, epoch=0, **figures, best=True)
            self.display.validated(epoch=0, figures=figures, best=True)

    def _validate(self, sources: Sequence[RowSource]) -> tuple[dict[str, float], np.ndarray]:
        """Figures on the held-out classes, the same on every process, and the labels they were computed with."""
        assert self.parts.sets.validation is not None
        z, indices = self.embed(*sources)
        labels = self.parts.sets.validation.require_labels()[indices.cpu().numpy()]
        ks = self.recipe.validation.ks
        figures = validation.figures(self.parts.model.normalise(z), labels, ks) if self.first else None
        return self.fabric.broadcast(figures) or {}, labels

    def _maybe_validate(self, epoch: int) -> None:
        v, parts = self.recipe.validation, self.parts
        if epoch % v.every and epoch != self.recipe.train.epochs:
            return
        with parts.ema.applied() if parts.ema is not None else contextlib.nullcontext():
            if not parts.inputs.validation:
                self._save_best()
                return
            figures, labels = self._validate(parts.inputs.validation)
            self.progress.figures = figures
            better = self.progress.best is None or figures[v.metric] > self.progress.best + v.min_delta
            if better:
                self.progress.best, self.progress.best_step, self.progress.since_best = (
                    figures[v.metric],
                    self.progress.step,
                    0,
                )
                self._save_best()
            else:
                self.progress.since_best += 1
        self.metrics.write("validation", step=self.progress.step, epoch=epoch, **figures, best=better)
        self.display.validated(epoch=epoch, figures=figures, best=better)
        for words in self.watch.validation(figures, labels, k=min(v.ks), step=self.progress.step):
            self._warn(words)
        if v.patience is not None and self.progress.since_best >= v.patience:
            self.progress.stopped = True
            self.display.say(f"stopping early: {v.metric} has not improved for {v.patience} validations")

    def _save_best(self) -> None:
        if self.first:
            sets = self.parts.sets
            self.parts.model.origin = Origin(
                data=self.recipe.data.path,
                taught=sets.train.classes,
                chosen_on=() if sets.validation is None else sets.validation.classes,
            )
            with self.directory.writing():
                self.parts.model.save(self.directory.best)

    def _make_best_again(self) -> None:
        """``best/`` was removed: take it from the checkpoint that it was made at, or else from where the run stands."""
        if self.progress.best is None and self.parts.inputs.validation:
            return  # there was none yet
        at_hand = self.progress.step if self.progress.best is None else self.progress.best_step
        if at_hand != self.progress.step and not self._best_from_checkpoint(at_hand):
            self.progress.best = None
            self.display.warn(
                f"{self.directory.best} is gone, and so is the checkpoint of step {at_hand} that it was made of: it is "
                f"made again from step {self.progress.step}"
            )
            at_hand = self.progress.step
        if at_hand == self.progress.step:
            ema = self.parts.ema
            with ema.applied() if ema is not None else contextlib.nullcontext():
                if self.progress.best is None and self.parts.inputs.validation:
                    self.progress.figures, _ = self._validate(self.parts.inputs.validation)
                    self.progress.best = self.progress.figures[self.recipe.validation.metric]
                    self.progress.best_step = self.progress.step
                self._save_best()
        self.display.say(f"{self.directory.best} was gone; it is made again from step {at_hand}")

    def _best_from_checkpoint(self, step: int) -> bool:
        """Whether the checkpoint of that step is there and sound; then ``best/`` is written from it."""
        try:
            found = checkpoint.load(self.directory.checkpoints / f"step-{step:08d}")
        except checkpoint.Damaged:
            return False
        now = {name: tensor.clone() for name, tensor in self.parts.model.state_dict().items()}
        weights = checkpoint.under(found.tensors, "model.") | checkpoint.under(found.tensors, "ema.")
        self.parts.model.load_state_dict(weights)
        self._save_best()
        self.parts.model.load_state_dict(now)
        return True

    def _maybe_save(self, stop: bool) -> None:
        step, every = self.progress.step, self.recipe.train.checkpoint_every
        if stop or self.finished or step % (every or self.parts.steps_per_epoch) == 0:
            self.save()

    def save(self) -> None:
        """Write a checkpoint."""
        if self.first:
            with self.directory.writing():
                saved = resume.capture(self.parts, self.progress, self.watch, metrics_bytes=self.metrics.position())
                checkpoint.save(self.directory.checkpoints, saved, keep=self.recipe.train.keep)

    def restore(self) -> int:
        """Take up the newest sound checkpoint, if there is one; the size that metrics.jsonl had then."""
        found = checkpoint.newest(self.directory.checkpoints, say=self.display.warn)
        if found is None:
            return 0
        self.progress = resume.restore(found, self.parts, self.watch, where=self.directory.path)
        self.display.say(f"continuing after step {found.step} of {self.parts.total} ({self.directory.path})")
        return found.state["metrics_bytes"]

    def _agreed(self, interrupt: Interrupt) -> bool:
        """Whether any process was asked to stop: all must stop after the same step."""
        if self.fabric.world_size == 1:
            return interrupt.asked
        asked = torch.tensor(float(interrupt.asked), device=self.fabric.device)
        return bool(self.fabric.all_reduce(asked, reduce_op="sum") > 0)  # pyright: ignore[reportOperatorIssue]

    def _warn(self, words: str) -> None:
        self.metrics.write("warning", step=self.progress.step, message=words)
        self.display.warn(words)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Torch's deterministic algorithms, where it has them."""
    before: Any = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # pyright: ignore[reportAttributeAccessIssue]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill  # pyright: ignore[reportAttributeAccessIssue]
