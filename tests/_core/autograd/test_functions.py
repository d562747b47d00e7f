"""`backward` and `grad`: roots, output gradients, chosen inputs, graphs kept and made, leaves on several devices, threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau as fb
from flambeau import autograd


def leaf(*values):
    return fb.tensor(values if len(values) != 1 else values[0], dtype=fb.float64, requires_grad=True)


def test_output_gradients_and_their_errors():
    x = leaf(1.0, 2.0)
    y = x * x
    y.backward(gradient=fb.tensor([1.0, 10.0], dtype=fb.float64))
    assert x.grad.tolist() == [2, 40]
    (g,) = autograd.grad(x * 3, x, grad_outputs=fb.tensor([1.0, 2.0], dtype=fb.float64))
    assert g.tolist() == [3, 6]
    for call, error, message in [
            (lambda: (x * x).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs"),
            (lambda: (x * x).backward(fb.ones(3, dtype=fb.float64)), RuntimeError, r"Mismatch in shape: grad_output\[0\] has a shape of"),
            (lambda: (x * x).backward(3.0), TypeError, "gradients can be either Tensors or None"),
            (lambda: fb.ones(1).backward(), RuntimeError, "does not require grad and does not have a grad_fn"),
            (lambda: autograd.grad(x.sum(), fb.ones(1)), RuntimeError, "does not require grad"),
            (lambda: (x * 1j).sum().backward(), RuntimeError, "only for real scalar outputs"),
            (lambda: autograd.backward([x.sum()], [None, None]), RuntimeError, "1 tensors and 2 gradients"),
            (lambda: x.sum().backward(inputs=[]), RuntimeError, "cannot be empty"), (lambda: autograd.grad(x.sum(), []), RuntimeError, "cannot be empty"),
            (lambda: autograd.grad(x.sum(), [x, fb.ones(1, requires_grad=True)]), RuntimeError, "at index 1 appears to not have been used"),
            (lambda: x.sum().backward(inputs=[fb.ones(1)]), RuntimeError, "does not require grad")]:
        with pytest.raises(error, match=message):
            call()


def test_several_roots_with_common_history():
    x = leaf(2.0)
    y = x * x
    autograd.backward([y * 3, y.exp()], [None, fb.tensor(2.0, dtype=fb.float64)])
    np.testing.assert_allclose(x.grad.item(), 3 * 4 + 2 * 4 * np.exp(4))
    a, b = autograd.grad((x * x).sum() + x * 5, [x, x])
    assert a.item() == b.item() == 9


def test_unused_inputs():
    x, z = leaf(1.0), leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="Set allow_unused=True"):
        autograd.grad(x * 2, [x, z])
    gx, gz = autograd.grad(x * 2, [x, z], allow_unused=True)
    assert gx.item() == 2 and gz is None
    gx, gz = autograd.grad(x * 2, [x, z], materialize_grads=True)
    assert gz.tolist() == [0, 0]
    assert x.grad is None and z.grad is None


def test_interior_tensors_and_chosen_leaves():
    x, w = leaf(3.0), leaf(5.0)
    y = x * x
    z = y * w
    gy, gx = autograd.grad(z, [y, x], retain_graph=True)
    assert gy.item() == 5 and gx.item() == 30
    z.backward(inputs=[w])
    assert w.grad.item() == 9 and x.grad is None
    y = x * x
    y.retain_grad()
    (y * w).backward(inputs=[y, x])
    assert y.grad.item() == 5 and x.grad.item() == 30 and w.grad.item() == 9


def test_graphs_are_kept_when_asked_and_freed_else():
    x = leaf(2.0)
    y = x.exp() * x
    autograd.grad(y, x, retain_graph=True)
    autograd.grad(y, x)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        autograd.grad(y, x)


def test_gradients_of_gradients():
    x = leaf(2.0)
    y = x ** 5
    orders = [y]
    for _ in range(5):
        orders.append(autograd.grad(orders[-1], x, create_graph=True)[0])
    np.testing.assert_allclose([o.item() for o in orders], [32, 80, 160, 240, 240, 120])
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (g,) = autograd.grad((a * b).sum(), a, create_graph=True)
    assert g.requires_grad
    (g * g).sum().backward()
    assert b.grad.tolist() == [6, 8] and a.grad is None
    x.grad = None
    (x ** 3).backward(create_graph=True)
    x.grad.backward()
    assert x.grad.item() == 12 + 12


def test_a_hessian_vector_product():
    a = np.random.default_rng(0).normal(size=(4, 4))
    x, v = fb.tensor(np.ones(4), requires_grad=True), np.arange(4.0)
    f = (x @ fb.tensor(a) @ x) + (x ** 3).sum()
    (g,) = autograd.grad(f, x, create_graph=True)
    (hv,) = autograd.grad(g, x, fb.tensor(v))
    np.testing.assert_allclose(hv.numpy(), (a + a.T) @ v + 6 * v)


def test_batched_output_gradients():
    x = leaf(1.0, 2.0, 3.0)
    (j,) = autograd.grad(x * x, x, fb.eye(3, dtype=fb.float64), is_grads_batched=True)
    np.testing.assert_array_equal(j.numpy(), np.diag([2.0, 4.0, 6.0]))


def test_gradients_of_complex_functions():
    z = fb.tensor([1 + 2j, -0.5 + 1j], dtype=fb.complex128, requires_grad=True)
    (z.abs() ** 2).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy())  # conjugate Wirtinger derivative, doubled
    z.grad = None
    (z * z).real.sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), (2 * z.detach().numpy()).conj())


def test_gradients_cross_devices_and_land_with_their_leaves(sim_gpus):
    w0, w1 = (fb.full((3,), float(i + 2), device=f"cuda:{i}", requires_grad=True) for i in (0, 1))
    x = fb.arange(3.0, requires_grad=True)
    h = (x.to("cuda:0") * w0).to("cuda:1") * w1
    h.cpu().sum().backward()
    assert str(w0.grad.device) == "cuda:0" and str(w1.grad.device) == "cuda:1" and str(x.grad.device) == "cpu"
    assert w0.grad.cpu().tolist() == [0, 3, 6] and w1.grad.cpu().tolist() == [0, 2, 4] and x.grad.tolist() == [6, 6, 6]


def test_zero_dim_host_tensors_beside_gpu_tensors(sim_gpus):
    s = fb.tensor(3.0, requires_grad=True)
    (fb.ones(4, device="cuda") * s).sum().backward()
    assert str(s.grad.device) == "cpu" and s.grad.item() == 4


def test_backward_in_several_threads():
    w = fb.ones(100, dtype=fb.float64, requires_grad=True)
    errors = []

    def work():
        try:
            for _ in range(20):
                (g,) = autograd.grad((w * w * 3).sum(), w)
                assert g.tolist() == [6.0] * 100
        except Exception as error:  # noqa: BLE001
            errors.append(error)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and w.grad is None


def test_results_of_a_frozen_part_need_no_gradient():
    x, frozen = leaf(2.0), fb.tensor(3.0, dtype=fb.float64)
    with fb.no_grad():
        h = x * x
    y = h * frozen + x
    y.backward()
    assert x.grad.item() == 1 and not h.requires_grad


def test_one_graph_used_twice_adds_up():
    x = leaf(1.5)
    y = x.sin()
    z = y * y + y
    z.backward()
    np.testing.assert_allclose(x.grad.item(), (2 * np.sin(1.5) + 1) * np.cos(1.5))


def test_on_every_device(device):
    x = fb.tensor([1.0, 2.0]).to(device).requires_grad_()
    (g,) = autograd.grad((x ** 3).sum(), x, create_graph=True)
    (h,) = autograd.grad(g.sum(), x)
    assert str(g.device) == str(h.device) == device and g.tolist() == [3, 12] and h.tolist() == [6, 12]


def test_inputs_may_come_from_any_iterable() -> None:
    params = {"w": fb.ones(2, requires_grad=True), "b": fb.ones(1, requires_grad=True)}
    for inputs in (params.values(), (p for p in params.values()), iter(params.values())):
        a, b = fb.autograd.grad((params["w"] * 3 + params["b"]).sum(), inputs)
        assert a.tolist() == [3, 3] and b.tolist() == [2]


def test_a_pass_to_some_inputs_runs_only_what_leads_there():
    class Never(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("this leads to no input")
    x, y = (fb.ones(2, requires_grad=True) for _ in range(2))
    h = y * 2
    hooked = []
    x.register_hook(hooked.append)
    out = (Never.apply(x) + h).sum()
    out.backward(inputs=[y, h], retain_graph=True)
    assert x.grad is None and not hooked and y.grad.tolist() == [2, 2] and h.grad.tolist() == [1, 1] and h.retains_grad
    Never.apply(x).sum().backward(inputs=[y])
    assert y.grad.tolist() == [2, 2]


def test_zeros_for_unused_inputs_can_be_differentiated_again():
    x, a = leaf(0.5), leaf(1.0)
    first = autograd.grad(x * a, x, create_graph=True)
    second = autograd.grad(first, x, create_graph=True, materialize_grads=True)
    assert second[0].requires_grad and autograd.grad(second, x, materialize_grads=True)[0].tolist() == second[0].tolist()
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        autograd.grad(x * a, x, allow_unused=False, materialize_grads=True)


def test_a_node_may_let_no_gradient_through():
    x = leaf(1.0)
    (fb._C._functions.UndefinedGrad()(x * 2) + x * 3).backward()
    assert x.grad.item() == 3
