"""Calls at the edge of what an operation takes: the same result as PyTorch's, or an exception of the same type, whichever check comes first."""

from __future__ import annotations

import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")

CALLS = """
T.tensor(1.).mT
T.tensor(1.).mH
T.ones(3).mT
T.ones(3).mH
T.tensor(1.).H
T.ones(3).H
T.tensor(1.).adjoint()
T.ones(3).adjoint()
T.tensor(1.).diagonal(0,0,-1)
T.tensor(1.).diagonal(0,0,1)
T.ones(3).diagonal()
T.split(T.tensor(1.),[1],0)
T.split(T.tensor(1.),1,0)
T.split(T.tensor(1.),1,1)
T.chunk(T.tensor(1.),1,1)
T.split(T.ones(2),[1],3)
T.split(T.ones(2),1,3)
T.tensor(1.).unflatten(0,(1,1))
T.ones(3).unflatten(2,(1,1))
T.ones(3).unflatten(0,(1,1))
T.ones(3).unflatten(0,(2,-1))
T.ones(3).unflatten(0,())
T.tensor(1.).permute()
T.tensor(1.).permute(())
T.ones(3).permute()
T.tensor(1.).expand()
T.tensor(1.).expand(())
T.ones(2).expand()
T.ones(2).expand(())
T.amin(T.ones(2,2),(0,0))
T.baddbmm(T.ones(2,2),T.ones(2,2),T.ones(2,2))
T.baddbmm(T.ones(2,2),T.ones(2,2,2),T.ones(2,2))
T.baddbmm(T.ones(2,2),T.ones(2),T.ones(2,2,2))
T.baddbmm(T.ones(3,2,2),T.ones(2,2,2),T.ones(2,2,2))
T.baddbmm(T.ones(2,2,2),T.ones(2,2,2),T.ones(2,2,2,2))
T.baddbmm(T.ones(2,2,2),T.ones(2,2,2),T.ones(2,3,2))
T.addmm(T.ones(2,2),T.ones(2),T.ones(2,2))
T.addmm(T.ones(3,3),T.ones(2,2),T.ones(2,2))
T.addmm(T.ones(3,3),T.ones(2,2),T.ones(2))
T.ones(2,2).index_fill(0,T.zeros(1,1,dtype=T.int64),1)
T.ones(2,2).index_fill(3,T.zeros(1,1,dtype=T.int64),1)
T.ones(2,2).index_fill(0,T.zeros(1),1)
T.ones(2,2).index_fill(0,T.zeros(1,dtype=T.int32),1)
T.ones(2,2).index_fill(0,T.tensor(5),1)
T.ones(2,2,dtype=T.int64).index_fill(0,T.tensor([]).long(),1.5)
T.ones(2,2,dtype=T.int64).index_fill(0,T.tensor([0]),1.5)
T.ones(2,2,dtype=T.int64).index_fill(0,T.tensor([0]),1j)
T.index_select(T.ones(2,2),0,T.zeros(1,1,dtype=T.int64))
T.index_select(T.ones(2,2),3,T.zeros(1,1,dtype=T.int64))
T.index_select(T.ones(2,2),0,T.zeros(1))
T.index_select(T.ones(2,2),0,T.tensor([5]))
T.index_select(T.ones(4),0,T.tensor([-1]))
T.index_select(T.tensor(1.),0,T.tensor([-1]))
T.index_select(T.tensor(1.),0,T.tensor([0,0]))
T.ones(2,2).index_add(0,T.zeros(1,1,dtype=T.int64),T.ones(1,2))
T.ones(2,2).index_add(0,T.zeros(1,dtype=T.int64),T.ones(1,2).double())
T.ones(2).index_add(0,T.tensor([3]),T.ones(1))
T.ones(2,2).index_copy(0,T.zeros(1,1,dtype=T.int64),T.ones(1,2))
T.ones(2,2).index_copy(0,T.zeros(1),T.ones(1,2))
T.ones(2,2).index_copy(0,T.zeros(1,dtype=T.int64),T.ones(1,2).double())
T.ones(2,2).index_copy(0,T.zeros(1,dtype=T.int64),T.ones(2).double())
T.ones(2,2).index_copy(0,T.tensor([5]),T.ones(1,2))
T.ones(2,2).index_copy(0,T.tensor([-1]),T.ones(1,2))
T.ones(2,2).index_copy(0,T.tensor([0,1]),T.tensor(1.))
T.ones(2).index_copy(0,T.tensor([0]),T.tensor(1.))
T.tensor(1.).index_copy(0,T.tensor([0,0]),T.tensor(1.))
T.tensor(1.).index_copy(0,T.tensor([0,0]),T.ones(2))
T.tensor(1.).index_copy(0,T.tensor([0,0]),T.ones(2).double())
T.tensor(1.).scatter_add(1,T.tensor([0]),T.ones(1).double())
T.ones(2).scatter_add(1,T.tensor([0.]),T.ones(1))
T.ones(2).scatter_add(0,T.tensor([0.]),T.ones(1).double())
T.ones(2).scatter_add(0,T.tensor([[0]]),T.ones(1).double())
T.ones(2).scatter_add(0,T.tensor([5,5,5]),T.ones(1).double())
T.ones(2).scatter_add(0,T.tensor([5,5,5]),T.ones(1))
T.ones(2).scatter(0,T.tensor([5,5,5]),T.ones(1).double())
T.ones(2).scatter(1,T.tensor([0]),float('inf'))
T.ones(2).long().scatter(1,T.tensor([0]),float('inf'))
T.ones(2).long().scatter(0,T.tensor([0]),float('inf'))
T.ones(2).long().scatter(0,T.tensor([5]),float('inf'))
T.ones(2).scatter_reduce(1,T.tensor([0]),T.ones(1).double(),'mean')
T.ones(2).scatter_reduce(0,T.tensor([0.]),T.ones(1).double(),'mean')
T.ones(2).scatter_reduce(0,T.tensor([[0]]),T.ones(1).double(),'mean')
T.ones(2).scatter_reduce(0,T.tensor([0]),T.ones(1).double(),'mean')
T.ones(2).scatter_reduce(1,T.tensor([0]),T.ones(1),'foo')
T.gather(T.ones(2),1,T.tensor([0.]))
T.gather(T.ones(2),0,T.tensor([0.]))
T.gather(T.ones(2),0,T.tensor([[0]]))
T.gather(T.ones(2),0,T.tensor([5]))
T.softmax(T.ones(2).long(),1)
T.softmax(T.ones(2).long(),0)
T.softmax(T.ones(0).long(),0)
T.softmax(T.tensor(1).long(),0)
T.log_softmax(T.ones(2).long(),1)
T.log_softmax(T.ones(0).long(),0)
T.logcumsumexp(T.ones(2).long(),1)
T.logcumsumexp(T.ones(2).long(),0)
T.logcumsumexp(T.ones(0).long(),0)
T.logcumsumexp(T.tensor(1),0)
T.nn.functional.glu(T.ones(2).bool(),1)
T.nn.functional.glu(T.ones(2).bool(),0)
T.nn.functional.glu(T.ones(3).bool(),0)
T.nn.functional.glu(T.ones(0).bool(),0)
T.nn.functional.glu(T.tensor(1.),0)
T.kthvalue(T.ones(2).bool(),1,1)
T.kthvalue(T.ones(2).bool(),1,0)
T.kthvalue(T.tensor(True),1,0)
T.kthvalue(T.tensor(1j),1,0)
T.kthvalue(T.tensor(1.),2,0)
T.kthvalue(T.ones(2)*1j,1,0)
T.kthvalue(T.ones(2)*1j,3,0)
T.kthvalue(T.ones(2,0)*1j,1,0)
T.kthvalue(T.ones(2,0),1,1)
T.median(T.ones(2)*1j,1)
T.median(T.ones(2)*1j,0)
T.median(T.ones(2)*1j)
T.median(T.ones(2).bool())
T.median(T.ones(2).bool(),0)
T.median(T.tensor(True),0)
T.median(T.tensor(1j),0)
T.median(T.tensor(True))
T.median(T.ones(0).long())
T.nanmedian(T.ones(0).long())
T.median(T.ones(0).bool())
T.median(T.ones(0)*1j)
T.median(T.ones(0,2),0)
T.median(T.ones(0,2).bool(),0)
T.median(T.ones(0,2).bool(),1)
T.median(T.ones(0),0)
T.nanmedian(T.ones(0,2)*1j,0)
T.mode(T.ones(2)*1j,1)
T.mode(T.ones(2)*1j,0)
T.mode(T.ones(2,0)*1j,0)
T.mode(T.ones(2,0)*1j,1)
T.mode(T.tensor(1j),0)
T.mode(T.ones(2).bool(),0)
T.cummax(T.ones(2)*1j,1)
T.cummax(T.ones(2)*1j,0)
T.cummax(T.tensor(1j),0)
T.cummax(T.ones(0)*1j,0)
T.cummax(T.ones(0),1)
T.cummax(T.ones(0,2),2)
T.cummax(T.ones(0,2),-3)
T.cummin(T.ones(2,0),2)
T.cumsum(T.ones(0,2),2)
T.cartesian_prod(T.tensor(1.),T.tensor(2.))
T.cartesian_prod(T.tensor(1.))
T.cartesian_prod(T.ones(2,2))
T.cartesian_prod(T.ones(2,2),T.ones(2))
T.nn.functional.linear(T.ones(2,2),T.tensor(1.))
T.nn.functional.linear(T.tensor(1.),T.ones(2))
T.nn.functional.linear(T.ones(2,2).bool(),T.ones(2,2).bool())
T.nn.functional.linear(T.ones(2,2),T.ones(2))
T.nn.functional.linear(T.ones(2,2),T.ones(2,3))
T.clamp(T.ones(2),T.ones(2),1)
T.clamp(T.ones(2),0,T.ones(2))
T.ones(2).clamp_(0,T.ones(2))
T.clip(T.ones(2),0,T.ones(2))
T.clamp(T.ones(2),None,T.ones(2))
T.clamp(T.ones(2),None,None)
T.clamp(T.ones(2),min=T.ones(3))
T.tensor(1.).flatten(1)
T.tensor(1.).flatten(0,1)
T.tensor(1.).flatten(-2,-1)
T.tensor(1.).flatten(0,-1)
T.repeat_interleave(T.tensor(1.),2,dim=-1)
T.repeat_interleave(T.tensor(1.),2,dim=0)
T.repeat_interleave(T.tensor(1.),2)
T.repeat_interleave(T.tensor(1.),T.tensor([1,2]),0)
T.repeat_interleave(T.tensor(1.),T.tensor([2]),0)
T.repeat_interleave(T.ones(3),T.tensor([1,2]),0)
T.repeat_interleave(T.ones(3),T.tensor([1,2]),1)
T.repeat_interleave(T.ones(3),2,1)
T.repeat_interleave(T.ones(3),-2,0)
T.take_along_dim(T.ones(2,2),T.ones(2).long(),0)
T.take_along_dim(T.ones(2,2),T.ones(2,2),0)
T.tensor([True]).pow_(T.tensor([True]))
T.einsum('ij,jk->ik',T.ones(2,2).bool(),T.ones(2,2))
T.einsum('i,i->',T.ones(2).bool(),T.ones(2))
T.einsum('...i,...i->...',T.ones(2).bool(),T.ones(2))
T.einsum('ii->i',T.ones(2,3))
T.einsum('ii->i',T.ones(1,2))
T.trapezoid(T.ones(2).bool())
T.trapezoid(T.ones(0).bool())
T.trapezoid(T.ones(1).bool())
T.trapezoid(T.ones(3).long())
T.trapezoid(T.tensor(1.))
T.matmul(T.ones(2,2),T.ones(2,2).long())
T.matmul(T.ones(0,2),T.ones(2,2).long())
T.matmul(T.ones(2,0),T.ones(0,2).long())
T.matmul(T.ones(0),T.ones(0).long())
T.matmul(T.ones(2,2,0),T.ones(0).long())
T.matmul(T.ones(0,2,0),T.ones(0,3).long())
T.mm(T.ones(2,0),T.ones(0,2).long())
T.tensor([1.,2.]).view(1,2).eq_(T.ones(2))
T.nn.functional.huber_loss(T.ones(2).long(),T.ones(2))
T.nn.functional.huber_loss(T.ones(2),T.ones(2).long())
T.nn.functional.huber_loss(T.ones(2),T.ones(2).double())
T.nn.functional.huber_loss(T.ones(2),T.zeros(2),weight=T.tensor([1.,3.]))
T.nn.functional.huber_loss(T.ones(2),T.zeros(2),weight=T.ones(1))
T.nn.functional.mse_loss(T.ones(2),T.zeros(2),weight=T.tensor([1.,3.]))
T.nn.functional.l1_loss(T.ones(2),T.zeros(2),weight=T.tensor([1.,3.]))
T.nn.functional.rms_norm(T.full((1,64),1e-3).bfloat16(),(64,))
T.nn.functional.rms_norm(T.full((1,64),1e-3).half(),(64,))
T.adaptive_max_pool1d(T.arange(6.).reshape(1,2,3),2)
T.adaptive_max_pool1d(T.arange(6.).reshape(1,2,3),2,True)
T.adaptive_max_pool1d(T.arange(6.).reshape(2,3),(1,))
T.nn.functional.adaptive_max_pool1d(T.arange(6.).reshape(1,2,3),2,True)
T.nn.functional.adaptive_max_pool1d_with_indices(T.arange(6.).reshape(1,2,3),2)
T.nn.functional.adaptive_max_pool2d_with_indices(T.arange(8.).reshape(1,2,2,2),1)
T.nn.functional.smooth_l1_loss(T.ones(2),T.ones(2).long())
T.nn.functional.mse_loss(T.ones(2),T.ones(2).long())
T.nn.functional.mse_loss(T.ones(2).long(),T.ones(2))
T.nn.functional.mse_loss(T.ones(2).long(),T.ones(2).long())
T.nn.functional.l1_loss(T.ones(2).long(),T.ones(2))
T.nn.functional.l1_loss(T.ones(2).long(),T.ones(2).long())
T.nn.functional.kl_div(T.ones(2),T.ones(2).double())
T.nn.functional.kl_div(T.ones(2).long(),T.ones(2).long())
T.nn.functional.binary_cross_entropy_with_logits(T.ones(2),T.ones(2).long())
T.nn.functional.binary_cross_entropy_with_logits(T.ones(2).long(),T.ones(2).long())
T.nn.functional.smooth_l1_loss(T.ones(2).half(),T.ones(2).double())
T.block_diag(T.ones(2),T.ones(2).double())
T.block_diag(T.ones(2).long(),T.ones(2))
T.ones(0).fill_(1j)
T.ones(2).fill_(1j)
T.ones(2,dtype=T.uint8).fill_(-1)
T.ones(2,dtype=T.uint8).fill_(-1.5)
T.ones(2,dtype=T.uint8).fill_(-0.5)
T.ones(2,dtype=T.uint8).fill_(255.5)
T.ones(2,dtype=T.int8).fill_(-128.5)
T.ones(2,dtype=T.uint8).masked_fill(T.ones(2).bool(),-1.5)
T.full((0,),1j,dtype=T.float32)
T.full((2,),-1.5,dtype=T.uint8)
T.full_like(T.ones(2).long(),float('nan'))
T.scalar_tensor(float('inf'),dtype=T.int64)
T.tensor(-1.5,dtype=T.uint8)
T.tensor([-1.5,300.],dtype=T.uint8)
T.clamp(T.ones(2,dtype=T.uint8),-1.5,300)
T.nn.functional.pad(T.ones(2,dtype=T.uint8),(1,1),value=-1.5)
T.nn.functional.pad(T.ones(2,dtype=T.uint8),(1,0),value=2.5)
"""

# an assignment to what an index shows: the tensor, then what is done to it
WRITES = """
T.arange(6.).reshape(2, 3) :: x[None, None] = x[0]
T.arange(6.).reshape(2, 3) :: x[None] = x
T.arange(6.).reshape(2, 3) :: x[:] = x[0]
T.arange(6.).reshape(2, 3) :: x[False] = x[0]
T.arange(6.).reshape(2, 3) :: x[True] = x[0]
T.arange(6.).reshape(2, 3) :: x[True, :] = x[0]
T.arange(6.).reshape(2, 3) :: x[..., None] = x[0]
T.arange(6.).reshape(2, 3) :: x[[0, 1]] = x
T.arange(6.).reshape(2, 3) :: x.t().copy_(x)
T.ones(()) :: x[None] = x
T.ones(3, dtype=T.uint8) :: x[0:2] = -1.5
T.ones(3, dtype=T.uint8) :: x[0:2] = -1
T.ones(3) :: x[3:] = 1j
T.ones(3) :: x[False] = 1j
T.ones(3) :: x[[]] = 1j
T.ones(3) :: x[5] = 1j
T.ones(3) :: x[5] = 1.0
T.ones(3).long() :: x[[0, 0], 0] = float("nan")
T.zeros(1, 1) :: x[..., [0, -2, 2]] = T.ones(2)
T.zeros(2, 2) :: x[[2]] = T.ones(3, 3)
T.zeros(2, 2) :: x[[2]] = T.ones(2).double()
T.zeros(2, 2) :: x[[0, 1], [0, 1, 0]] = T.ones(2).double()
T.zeros(0, 2) :: x[[0, 1]] = T.ones(2).double()
T.zeros(2, 2) :: x[[True, False, True]] = T.ones(3, 3)
T.zeros(2, requires_grad=True) :: x[[True]] = 1.0
T.zeros(4).reshape(2, 2).requires_grad_() :: x[0] = 1.0
T.zeros(4).reshape(2, 2).requires_grad_() :: x[:, 0].zero_()
T.zeros(4).reshape(2, 2).requires_grad_() :: x[[0]] = 1.0
"""


def shown(x):
    if isinstance(x, (tuple, list)):
        return [shown(i) for i in x]
    if hasattr(x, "tolist") and hasattr(x, "dtype"):
        return str(x.dtype).partition(".")[2], tuple(x.shape), repr(x.tolist())
    return repr(x)


def outcome(T, work):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return shown(work(T))
        except Exception as e:
            return type(e).__name__


@pytest.mark.parametrize("call", CALLS.strip().splitlines())
def test_the_same_answer_or_refusal(call):
    assert outcome(flambeau, lambda T: eval(call, {"T": T})) == outcome(torch, lambda T: eval(call, {"T": T}))


@pytest.mark.parametrize("write", WRITES.strip().splitlines())
def test_the_same_write_or_refusal(write):
    def work(T):
        made, _, line = write.partition(" :: ")
        names = {"T": T, "x": eval(made, {"T": T})}
        exec(line, names)
        return names["x"].detach()
    assert outcome(flambeau, work) == outcome(torch, work)


@pytest.mark.parametrize("call", [
    "T.nn.functional.l1_loss(T.tensor(1.), T.ones(1).bfloat16())", "T.nn.functional.mse_loss(T.ones(2), T.tensor(3., dtype=T.float64))",
    "T.clamp(T.ones(2), 0, T.tensor(2.))", "T.clamp(T.ones(2), T.tensor(2.), 1)", "T.clamp(T.ones(2), 0, T.tensor(2., requires_grad=True))",
    "T.ones(2, 2).index_put((T.tensor([0, 1]),), T.ones(1, 2, 2))", "T.ones(2, 2).index_put((T.tensor([0, 1]),), T.ones(1, 2))",
    "T.autograd.grad((x := T.zeros(2, requires_grad=True)).round().rsqrt().sum(), x)", "T.ones(3)[[True, True, True]].mT"])
def test_what_random_programs_found(call):
    assert outcome(flambeau, lambda T: eval(call, {"T": T})) == outcome(torch, lambda T: eval(call, {"T": T}))

FACTORIES = """
T.arange(3, dtype=T.bool)
T.arange(3, dtype=T.complex64)
T.range(0, 3, dtype=T.bool)
T.range(0, 3, 0)
T.range(0, 3, -1)
T.range(0, 6, 2)
T.linspace(0, 3, 3, dtype=T.bool)
T.logspace(0, 3, 3, dtype=T.bool)
T.randperm(3, dtype=T.bool)
T.randperm(300, dtype=T.uint8)
T.randperm(256, dtype=T.uint8).sort()[0]
T.randperm(2.5)
T.fft.fftfreq(3, dtype=T.int64)
T.fft.rfftfreq(3, dtype=T.complex64)
T.fft.fftfreq(3, out=T.empty(0, dtype=T.float64))
T.fft.fftfreq(3, out=T.empty(0, dtype=T.int64))
T.eye(2.5)
T.eye(2, 2.5)
T.tril_indices(2.5, 2)
T.hann_window(2.5)
T.full((3,), None)
T.full((3,), T.tensor([2, 3]))
T.ones(2).new_full((2,), 'a')
T.tensor(1j, dtype=T.float32)
T.tensor([1j], dtype=T.int64)
T.Tensor(2.5)
T.zeros(3, dtype=T.int32, out=T.empty(3))
T.zeros(3, device='meta', out=T.empty(3))
T.zeros(3, dtype=T.float32, device='cpu', out=T.empty(3))
T.ones(3, dtype=T.int32, out=T.empty(3))
T.full((3,), 1, dtype=T.int32, out=T.empty(3))
T.randn(3, dtype=T.float64, out=T.empty(3))
T.linspace(0, 1, 3, dtype=T.float64, out=T.empty(3))
T.eye(3, device='meta', out=T.empty(3))
T.arange(3, dtype=T.int64, out=T.empty(3))
T.randint(0, 2**63, (2,))
T.randint(0, 5.5, (2,))
T.randint(0, 300, (2,), dtype=T.uint8)
"""


@pytest.mark.parametrize("call", FACTORIES.strip().splitlines())
def test_factories_refuse_as_pytorch_does(call):
    assert outcome(flambeau, lambda T: eval(call, {"T": T})) == outcome(torch, lambda T: eval(call, {"T": T}))


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("bounds", [(), (0, None), (-5, None), (-5,), (300,), (1 << 25,), (1 << 24, (1 << 24) + 3), (5, 5), (-1, 1), (2.5,), (2 ** 63,),
                                    (0, 2 ** 63 - 1)])
def test_the_range_of_random_is_that_of_the_type(d, bounds):
    def ends(T):
        T.manual_seed(5)
        return T.empty(4000, dtype=getattr(T, d)).random_(*bounds)
    assert outcome(flambeau, ends) == outcome(torch, ends)


def test_a_range_that_a_type_does_not_hold_is_warned_of():
    for T in (flambeau, torch):
        with pytest.warns(UserWarning, match="out of bounds"):
            T.empty(3).random_(1 << 25)


@pytest.mark.parametrize("call", [
    "a.map2_(b, c, lambda x, y, z: x + y * z)", "a.map2_(T.ones(1), c, lambda x, y, z: x + y * z)", "a.map2_(b.double(), c, lambda x, y, z: x)",
    "a.map2_(b, 3, lambda x, y, z: x)", "a.map2_(T.ones(3), c, lambda x, y, z: x)", "a.map2_(b, c.requires_grad_(), lambda x, y, z: x)",
    "a.map_(b.double(), lambda x, y: x)", "a.map_(b, lambda x, y: 's')", "a.map_(b, lambda x, y: None)", "a.map_(3, lambda x, y: x)",
    "a.map_(b.requires_grad_(), lambda x, y: x)", "a.map_(T.ones(2, device='meta'), lambda x, y: x)"])
def test_elements_replaced_by_python_from_one_or_two_others(call):
    def work(T):
        return eval(call, {"T": T, "a": T.tensor([1., 2.]), "b": T.tensor([3., 4.]), "c": T.tensor([5., 6.])})
    assert outcome(flambeau, work) == outcome(torch, work)
