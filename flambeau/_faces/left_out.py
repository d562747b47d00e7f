"""Parts of PyTorch that Flambeau leaves out on purpose: importable, so that scripts which only name them run; any use says
what to do instead."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from flambeau.interop import stand_ins
from flambeau.interop.stand_ins import LeftOut

INSTEAD = {
    "onnx": "save the state dict with flambeau.save and export it with PyTorch, which loads the same file",
    "quantization": "use flambeau.autocast or .to(flambeau.bfloat16) for a smaller type",
    "ao": "use flambeau.autocast or .to(flambeau.bfloat16) for a smaller type",
    "export": "save the state dict and keep the module's Python code",
    "package": "save the state dict and keep the module's Python code",
    "nested": "pad the tensors (nn.utils.rnn.pad_sequence) and give a mask, or lay them one after the other with offsets",
    "monitor": "read flambeau.trace or torch.profiler",
}
# what programs take from these modules where they are imported: classes and functions that say so when they are called
_QUANTIZATION = """QuantStub DeQuantStub QuantWrapper QConfig FakeQuantize FakeQuantizeBase ObserverBase MinMaxObserver HistogramObserver
 MovingAverageMinMaxObserver PerChannelMinMaxObserver prepare() prepare_qat() convert() quantize() quantize_dynamic() fuse_modules()
 fuse_modules_qat() get_default_qconfig() get_default_qat_qconfig() get_default_qconfig_mapping() propagate_qconfig_() add_quant_dequant()"""
_FX = "prepare_fx() prepare_qat_fx() convert_fx() fuse_fx()"
_NAMES = {"ao.quantization": _QUANTIZATION, "quantization": _QUANTIZATION, "ao.quantization.quantize_fx": _FX, "quantization.quantize_fx": _FX,
          "nested": "nested_tensor() as_nested_tensor() to_padded_tensor() nested_tensor_from_jagged() narrow()",
          "nested._internal.nested_tensor": "NestedTensor", "monitor": "Event Stat log_event() register_event_handler() TensorboardEventHandler"}


# the modules below these that programs import
BELOW = frozenset("""onnx.utils onnx.operators onnx.symbolic_helper onnx.symbolic_opset9 onnx.symbolic_opset11 onnx.verification
 ao.quantization ao.quantization.quantize_fx ao.quantization.observer ao.quantization.fake_quantize ao.quantization.qconfig ao.quantization.stubs
 ao.nn ao.nn.quantized ao.nn.quantized.dynamic ao.nn.qat ao.nn.intrinsic ao.nn.intrinsic.qat ao.nn.quantizable ao.pruning
 quantization.quantize_fx quantization.observer quantization.fake_quantize quantization.qconfig quantization.stubs
 export.dynamic_shapes export.graph_signature export.exported_program package.package_importer package.package_exporter
 nested._internal nested._internal.nested_tensor""".split())

# questions that programs ask of what is left out, and the answers
_ANSWERS: dict[str, Any] = {"onnx.is_in_onnx_export": lambda: False}


# the types and schemes of quantized tensors, for tables by them; no tensor has one
globals().update(stand_ins.names("flambeau", """qint8 qint32 quint8 quint2x4 quint4x2 per_tensor_affine per_tensor_symmetric
 per_channel_affine per_channel_symmetric""", INSTEAD["quantization"]))


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answer = _ANSWERS.get(f"{self.__name__.partition('.')[2]}.{name}")
        if answer is not None:
            return answer
        below = f"{self.__name__.partition('.')[2]}.{name}"
        if below in BELOW:  # named as an attribute, and what ``from torch.ao import quantization`` asks for first
            made = sys.modules[f"flambeau.{below}"] = vars(self)[name] = module(below)
            return made
        raise LeftOut(f"torch.{self.__name__.partition('.')[2]}.{name}: Flambeau leaves torch.{self.__name__.partition('.')[2]} out; "
                      f"{INSTEAD[self.__name__.split('.')[1]]}")


def module(name: str) -> ModuleType:
    """The stand-in for `flambeau.<name>`, which may be a module below one that is left out."""
    top, why = name.split(".")[0], INSTEAD[name.split(".")[0]]
    made = _Module(f"flambeau.{name}", f"Left out: {why}.")
    made.__path__ = []
    if name in _NAMES:
        vars(made).update(stand_ins.names(made.__name__, _NAMES[name], f"Flambeau leaves torch.{top} out; {why}"))
    return made
