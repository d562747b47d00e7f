"""What programs are told of the package "torch" in an environment that has none, and `flambeau.as_torch`."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from .test_run import environment, run


def test_metadata_answers_for_torch_and_torchvision(tmp_path) -> None:
    made = run(tmp_path, """
        import importlib.metadata as metadata, importlib.util, torch
        assert metadata.version("torch") == torch.__version__ == "2.13.0+flambeau"
        assert metadata.version("torchvision").startswith("0.28")
        assert importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision")
        found = metadata.distribution("Torch")
        assert found.metadata["Name"] == "torch" and found.requires is None and not list(found.entry_points)
        assert found.locate_file("torch/nn/__init__.py").is_file()
        assert metadata.packages_distributions()["torch"] == ["torch"]
        assert "numpy" in {d.metadata["Name"] for d in metadata.distributions()}
        assert not metadata.entry_points(group="torch.backends")
        for other in ("torchaudio", "no_such_package"):
            try:
                metadata.version(other)
            except metadata.PackageNotFoundError:
                continue
            raise AssertionError(other)
        print("told")
    """)
    assert made.stdout == "told\n"


def test_as_torch_in_a_program_of_its_own() -> None:
    code = """
        import importlib.metadata as metadata
        import sys
        import flambeau.as_torch
        import torch, flambeau
        assert flambeau.as_torch.installed() and torch.Tensor is flambeau.Tensor
        assert metadata.version("torch") == str(torch.__version__)
        import subprocess
        said = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == str(torch.__version__), said
        flambeau.as_torch.undo()
        assert "torch" not in sys.modules and not flambeau.as_torch.installed()
        try:
            metadata.version("torch")
        except metadata.PackageNotFoundError:
            print("gone")
        else:
            print("another")
    """
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment(), capture_output=True, text=True, check=True, timeout=120)
    assert made.stdout in ("gone\n", "another\n")  # another: where a real torch is installed


def test_a_torch_that_was_imported_before_stays() -> None:
    code = """
        import sys, types
        sys.modules["torch"] = types.ModuleType("torch")
        try:
            import flambeau.as_torch
        except RuntimeError as error:
            print(error)
    """
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment(), capture_output=True, text=True, check=True, timeout=120)
    assert "imported before" in made.stdout
