"""`SummaryWriter`: event files that TensorBoard shows (torch.utils.tensorboard), written without TensorBoard."""

from __future__ import annotations

import itertools
import os
import socket
import time
import weakref
from typing import Any

from ..._core import forks
from ..._core.errors import warn
from . import events, pictures, projector, summary

_number = itertools.count()


class FileWriter:
    """One event file, appended to from any thread."""

    def __init__(self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        self.log_dir = os.fspath(log_dir)
        os.makedirs(self.log_dir, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_number)}{filename_suffix}"
        self.path = os.path.join(self.log_dir, name)
        self._file = open(self.path, "ab")
        self._lock, self._every, self._flushed = forks.lock(), flush_secs, time.monotonic()
        weakref.finalize(self, self._file.close)
        self.write(events.event(time.time(), 0, version="brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_summary(self, summary: bytes, global_step: Any = None, walltime: float | None = None) -> None:
        """Writes one encoded Summary."""
        self.write(events.event(time.time() if walltime is None else walltime, int(global_step or 0), summary))

    def write(self, data: bytes) -> None:
        """Writes one encoded Event."""
        with self._lock:
            if self._file.closed:
                self._file = open(self.path, "ab")  # a closed writer that is used again goes on in its file
            self._file.write(events.record(data))
            if time.monotonic() - self._flushed >= self._every:
                self._file.flush()
                self._flushed = time.monotonic()

    def flush(self) -> None:
        """All that was written is in the file."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        """Flushes and closes."""
        self._file.close()


class SummaryWriter:
    """Writes what a training run reports into a folder that TensorBoard watches.

    log_dir: the folder; None: runs/<date>_<host><comment>.  flush_secs: how long a report may wait in memory.
    purge_step and max_queue are taken and have no effect: reports are written as they come.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
                 flush_secs: float = 120, filename_suffix: str = "") -> None:
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir, self.purge_step, self.max_queue = os.fspath(log_dir), purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer: Any = None
        self.all_writers: dict[str, FileWriter] = {}
        self._projected: list[str] = []
        self._get_file_writer()

    def _get_file_writer(self) -> Any:
        if self.file_writer is None:
            self.file_writer = self._writer(self.log_dir)
        return self.file_writer

    def _writer(self, folder: str) -> FileWriter:
        if folder not in self.all_writers:
            self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
        return self.all_writers[folder]

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None, new_style: bool = False,
                   double_precision: bool = False) -> None:
        """One number (a Python number or a tensor of one element)."""
        value = summary.number(scalar_value, f"add_scalar {tag!r}")
        made = events.scalar_tensor(tag, value) if new_style else events.scalar(tag, value)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None) -> None:
        """Numbers shown in one chart, each in a folder of its own below log_dir."""
        for tag, value in tag_scalar_dict.items():
            writer = self._writer(os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag))
            writer.add_summary(events.scalar(main_tag, summary.number(value, f"add_scalars {main_tag!r}")), global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", walltime: float | None = None,
                      max_bins: int | None = None) -> None:
        """How values are spread.  Raises ValueError for none at all."""
        import numpy as np
        a = pictures.array(values).astype(np.float64).reshape(-1)
        if a.size == 0:
            raise ValueError(f"add_histogram {tag!r}: the values are empty")
        limits, counts = pictures.buckets(a, bins, max_bins)
        made = events.histogram(tag, a.min(), a.max(), a.size, a.sum(), (a * a).sum(), limits, counts)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None, dataformats: str = "CHW") -> None:
        """One picture: floats in [0, 1] or uint8, axes as `dataformats` names them."""
        a = pictures.hwc(img_tensor, dataformats)
        height, width, channels = a.shape
        self._get_file_writer().add_summary(events.image(tag, height, width, channels, pictures.png(a)), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None, dataformats: str = "NCHW") -> None:
        """A batch of pictures, as one grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib's, or several."""
        import numpy as np
        for one in figure if isinstance(figure, list) else [figure]:
            canvas = one.canvas
            if not hasattr(canvas, "buffer_rgba"):
                from matplotlib.backends.backend_agg import FigureCanvasAgg  # type: ignore[import-not-found, unused-ignore]
                canvas = FigureCanvasAgg(one)
            canvas.draw()
            self.add_image(tag, np.asarray(canvas.buffer_rgba()).copy(), global_step, walltime, "HWC")
            if close:
                import matplotlib.pyplot as plt  # type: ignore[import-not-found, unused-ignore]
                plt.close(one)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100, walltime: float | None = None) -> None:
        """A sound of one channel, samples in [-1, 1]."""
        a = pictures.array(snd_tensor).reshape(-1)
        self._get_file_writer().add_summary(events.audio(tag, sample_rate, a.size, pictures.wav(a, sample_rate)), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text (Markdown)."""
        self._get_file_writer().add_summary(events.text(tag, text_string), global_step, walltime)

    def add_hparams(self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: Any = None,
                    run_name: str | None = None, global_step: Any = None) -> None:
        """What was chosen for a run and what came of it, in a folder below log_dir.

        Values are bool, int, float, str, None (left out) or tensors of one element.
        """
        chosen = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        writer = self._writer(folder)
        for part in chosen:
            writer.add_summary(part, global_step)
        for tag, value in metric_dict.items():
            writer.add_summary(events.scalar(tag, summary.number(value, f"add_hparams {tag!r}")), global_step)
        writer.flush()

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: Any = None, num_thresholds: int = 127, weights: Any = None,
                     walltime: float | None = None) -> None:
        """Precision and recall at `num_thresholds` thresholds (at most 127) that lie evenly in [0, 1].

        labels: truths, one an element; predictions: probabilities in [0, 1], as many; weights: as many, or one for all.  Raises ValueError where the
        numbers of labels and predictions differ.
        """
        rows = pictures.precision_recall(labels, predictions, min(num_thresholds, 127), weights, f"add_pr_curve {tag!r}")
        self._get_file_writer().add_summary(events.pr_curve(tag, rows), global_step, walltime)

    def add_embedding(self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: int | None = None, tag: str = "default",
                      metadata_header: Any = None) -> None:
        """Points for TensorBoard's projector: (N, D) numbers, a label each, or a row of labels under `metadata_header`, and a picture each.

        label_img: (N, C, H, W) of 1 or 3 channels, floats in [0, 1] or uint8.  The tables are written below log_dir, in <global_step>/<tag>.
        Raises AssertionError where the numbers of points, labels and pictures differ, ValueError for other shapes.
        """
        points = pictures.array(mat)
        if points.ndim != 2:
            raise AssertionError(f"mat should be 2D, where mat.size(0) is the number of data points; got shape {points.shape}")
        if metadata is not None and len(metadata) != len(points):
            raise AssertionError(f"#labels should equal with #data points: {len(metadata)} and {len(points)}")
        if label_img is not None and len(label_img) != len(points):
            raise AssertionError(f"#images should equal with #data points: {len(label_img)} and {len(points)}")
        if metadata is not None and metadata_header and len(metadata) and len(metadata_header) != len(metadata[0]):
            raise AssertionError(f"len of header must be equal to the number of columns in metadata: {len(metadata_header)} and {len(metadata[0])}")
        step = 0 if global_step is None else int(global_step)
        subfolder = f"{step:05d}/" + "".join(f"%{ord(c):02x}" if c in "%/\\" else c for c in tag)
        projector.write(os.path.join(self.log_dir, subfolder), points, metadata, metadata_header, label_img)
        size = None if label_img is None else (int(label_img.shape[3]), int(label_img.shape[2]))
        self._projected.append(projector.entry(tag, step, subfolder, metadata is not None, size))
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "w", encoding="utf-8") as file:
            file.write("".join(self._projected))

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """Taken and not drawn: `flambeau.trace()` shows what a model runs."""
        warn("add_graph: no graph is written; flambeau.trace() shows what a model runs")

    def flush(self) -> None:
        """All that was added is in the files."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        """Flushes and closes; what is added afterwards goes on in new files."""
        for writer in self.all_writers.values():
            writer.close()
        self.file_writer, self.all_writers = None, {}

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


__all__ = ["FileWriter", "SummaryWriter"]
