"""Lines of random programs that once differed: values, types, shapes, strides and flags are PyTorch's, and so is the type of an exception."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

# What comes before `;;` makes the operands.
SHARED_MEMORY = """
v = T.ones(1);; v[None].copy_(v)
v = T.ones(1);; v.__setitem__(None, v)
v = T.ones(2);; v.__setitem__(None, v)
v = T.ones(1, 1);; v.__setitem__(None, v)
v = T.ones(2, 1);; v.__setitem__(slice(0, 1), v[0])
v = T.ones(2, 2);; v.__setitem__(slice(0, 1), v[0])
v = T.ones(2, 2);; v.__setitem__(slice(0, 1), v[-1:])
v = T.ones(3);; v.__setitem__(slice(None), v[1])
v = T.ones(3);; v[None].add_(v)
v = T.ones(3);; v.add_(v[None])
v = T.ones(3);; v.add_(v[:])
v = T.ones(2, 2);; v.add_(v.t())
v = T.ones(2, 2);; v.add_(v[0])
v = T.ones(());; v[None].pow_(v)
v = T.ones(2).expand(3, 2);; v.copy_(v)
v = T.ones(2).expand(3, 2);; v.__setitem__(..., v)
v = T.ones(2).expand(3, 2);; v.__setitem__(slice(0, None), v)
v = T.ones(2).expand(3, 2);; v.add_(v)
v = T.ones(3); v.copy_(v);; v._version
T.ones(2).expand(1, 3, 1, 2).stride()
T.ones(()).expand(1, 1).stride()
"""

CHECKS = """
T.baddbmm(T.ones(2).half(),T.tensor(1.),T.ones(2,2).long())
T.baddbmm(T.ones(2).half(),T.ones(2,2),T.ones(2,2).long())
T.gcd(T.ones(2).long(),T.ones(2).long(),out=T.zeros(2).bool())
T.lcm(T.ones(2).long(),T.ones(2).long(),out=T.zeros(2).int())
T.remainder(T.ones(2).byte(),1<<40)
T.ones(2).byte()//512
T.ones(2).byte().remainder(257)
T.pow(T.ones(2).half(),1<<40)
T.pow(T.ones(2).half(),float('inf'))
T.pow(T.ones(2).bfloat16(),1e300)
T.pow(T.ones(2),1e300)
T.nn.functional.tanhshrink(T.ones(2).bool())
T.cross(T.ones(2,3).bool(),T.ones(2,3))
T.amax(T.ones(2,dtype=T.complex64),0)
T.tensordot(T.ones(2,5,dtype=T.int64),T.ones(3,2),1)
T.tensordot(T.ones(2,1,dtype=T.int64),T.ones(3,2),1)
T.tensordot(T.ones(2),T.ones(2),([0],[0,1]))
T.addmm(T.ones(2,2).bfloat16(),T.ones(2,2),T.ones(2,2).bfloat16())
T.addmv(T.ones(2).half(),T.ones(2,0),T.ones(0).half())
T.baddbmm(T.ones(1,2,2).half(),T.ones(1,2,2).half(),T.ones(1,2,2))
T.addr(T.ones(2,2).half(),T.ones(2),T.ones(2).long(),alpha=.5)
T.ones(2,2).half().addr_(T.ones(2),T.ones(2).double(),beta=2)
T.ones(2,2).long().addr_(T.ones(2),T.ones(2).long())
T.ones(2,2).long().addr(T.ones(2).long(),T.ones(2).long(),beta=.5)
T.searchsorted(T.tensor([[1,2],[3,4],[5,6]]),T.tensor([[4],[4],[4]]),right=True)
T.tensor(1.,requires_grad=True).T
T.topk(T.tensor(1.),0)
T.topk(T.tensor(1.),0,-1)
T.topk(T.tensor(1.,requires_grad=True),0)
T.topk(T.ones(2,dtype=T.complex64),3,1)
T.topk(T.ones(2,dtype=T.complex64),3,0)
T.topk(T.ones(2,dtype=T.complex64),1,0)
T.topk(T.ones(2,dtype=T.bool),1,0)
T.topk(T.ones(2,dtype=T.bool),3,0)
T.max(T.ones(2,dtype=T.complex64),1)
T.max(T.ones(2,dtype=T.complex64))
T.max(T.ones(0,2,dtype=T.complex64),0)
T.min(T.ones(2,dtype=T.complex64),1)
T.amax(T.ones(0,2),(0,0))
T.amin(T.ones(0,2,dtype=T.complex64),1)
T.ones(3).index_fill(2,T.tensor([[1,0]]),1j)
T.ones(3).index_fill(0,T.tensor([0.]),1j)
T.ones(0).index_fill(0,T.tensor([0]),3)
T.ones(0).index_fill(-1,T.tensor([-1]),1.)
T.ones(4,0,2).index_fill(1,T.tensor([0]),1.)
T.ones(4,0,2).index_fill(0,T.tensor([5]),1.)
T.ones(4,0,2).index_fill(1,T.tensor([1]),1.)
T.ones(4,0,2).index_fill(1,T.tensor([0,0]),1.)
T.ones(4,0,2).index_fill(1,T.tensor([-1]),1.)
T.ones(4,0,2).index_fill(2,T.tensor([7,8,9]),1.)
T.index_select(T.ones(4,0,2),1,T.tensor([1,1]))
T.index_select(T.ones(4,0,2),2,T.tensor([5]))
T.index_select(T.ones(0,2),0,T.tensor([0]))
T.index_select(T.ones(0,2),1,T.tensor([5]))
T.index_select(T.ones(2,2),1,T.tensor([5]))
T.index_select(T.ones(2,2),1,T.tensor([-1]))
T.index_select(T.ones(1,2),-1,T.tensor([-1]))
T.index_select(T.ones(2,1),-1,T.tensor([-1]))
T.index_select(T.ones(2,2).long(),-1,T.tensor([-1]))
T.index_select(T.zeros(2,2).long().view(2,2)[:,:1].expand(2,2),-1,T.tensor([-1]))
T.index_select(T.ones(2,2,dtype=T.int16),1,T.tensor([-1]))
T.split(T.tensor(1.),[2,1],1)
T.split(T.tensor(1.),[1],5)
T.split_with_sizes(T.tensor(1.),[1],5)
T.ones(2,1).index_add(-1,T.tensor([1]),T.ones(2,1))
T.ones(1,3,2,1).index_add(-1,T.tensor([1]),T.ones(1,3,2,1))
T.ones(2,2).index_add(-1,T.tensor([4]),T.ones(2,1))
T.ones(2,2).index_add(0,T.tensor([4]),T.ones(1,2))
T.ones(2,0).index_add(0,T.tensor([4]),T.ones(1,0))
T.ones(1,2,1).index_add(-1,T.tensor([1]),T.ones(1,2,1))
T.addcdiv(T.ones(2),T.ones(2).long(),T.ones(2).long())
T.addcdiv(T.ones(2),T.ones(2).long(),T.ones(2).bool())
T.ones(2).addcdiv_(T.ones(2).long(),T.ones(2).long())
T.nn.functional.l1_loss(T.ones(2).bool(),T.ones(2))
T.nn.functional.l1_loss(T.ones(2),T.ones(2).bool())
T.ldexp(T.ones(2),T.ones(2).bool())
T.nn.functional.softsign(T.ones(2).bool())
T.nn.functional.softsign(T.ones(0).bool())
T.full_like(T.ones(0).long(),float('inf'))
T.full_like(T.ones(0).long(),1e30)
T.full_like(T.ones(0,dtype=T.uint8),300)
T.full_like(T.ones(0),1j)
T.lerp(T.ones(2),T.ones(2),T.ones(()).double())
T.cdist(T.ones(0,2).bfloat16(),T.ones(0,2))
T.cdist(T.ones(0,2).bfloat16(),T.ones(2,2))
T.cdist(T.ones(2,0).bfloat16(),T.ones(2,0))
T.einsum('i,i->',T.ones(3).bool(),T.ones(3).bool())
T.einsum('ij,jk->ik',T.ones(2,1),T.ones(1,3).long())
T.einsum('ij,jk->ik',T.ones(2,1),T.ones(2,3).long())
T.einsum('bij,bjk->bik',T.ones(1,2,1),T.ones(1,1,3).long())
T.einsum('i,i->',T.ones(1),T.ones(1).long())
T.searchsorted(T.ones(1).bool(),T.ones(2))
T.searchsorted(T.ones(0).bool(),T.ones(2))
T.nn.functional.interpolate(T.ones(3,0,3,4),scale_factor=2)
T.nn.functional.interpolate(T.ones(3,0,3),scale_factor=2)
T.nn.functional.interpolate(T.ones(1,0,3,3,3),scale_factor=2)
T.nn.functional.interpolate(T.ones(3,0,3,4),scale_factor=2,mode='bilinear')
"""

DERIVATIVES = """
x=T.ones(2,requires_grad=True);;T.sum(x,dtype=T.int64)
x=T.ones(2,requires_grad=True);;T.prod(x,0,dtype=T.int64)
x=T.ones(2,requires_grad=True);;T.cumsum(x,0,dtype=T.int64)
x=T.ones(2,requires_grad=True);;T.cumprod(x,0,dtype=T.int64)
x=T.ones(2,requires_grad=True);;T.nansum(x,dtype=T.int64)
x=T.ones(2,requires_grad=True);;T.nansum(x,0,dtype=T.int64)
x=T.ones(2,requires_grad=True);;T.sum(x>0)
x=T.tensor([1.5,2.7]);;T.sum(x,dtype=T.int64)
x=T.tensor([1.5,2.7]);;T.cumsum(x,0,dtype=T.int64)
x=T.tensor([1.5,2.7]);;T.prod(x,dtype=T.int64)
x=T.tensor([1.5,2.7]);;T.nansum(x,dtype=T.int64)
x=T.tensor([1.5,2.7+1j]);;T.sum(x,dtype=T.int64)
x=T.ones(2,requires_grad=True);y=x//2;y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=T.floor_divide(x,x);y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=T.div(x,x,rounding_mode='floor');y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=(x*1).floor_divide_(2.);y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=(x*1).div_(2.,rounding_mode='floor');y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=5.%x;y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=T.remainder(5.,x);y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=T.tensor(5.)%x;y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=x%3;y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True);y=T.heaviside(x,x);y.sum().backward();;x.grad
x=T.ones(2,requires_grad=True,dtype=T.complex64);;T.nn.functional.silu(x)
x=T.ones(2,dtype=T.complex64);;T.nn.functional.silu(x)
x=T.ones(0,requires_grad=True,dtype=T.complex64);;T.softmax(x,0)
x=T.ones(0,requires_grad=True,dtype=T.complex64);;T.log_softmax(x,0)
x=T.ones(2,0,requires_grad=True,dtype=T.complex64);;T.mode(x,0)
x=T.ones(2,0,requires_grad=True,dtype=T.complex64);;T.cummax(x,0)
x=T.ones(2,requires_grad=True,dtype=T.complex64);;T.nan_to_num(x)
x=T.ones(2,2,requires_grad=True,dtype=T.complex64);;x.scatter_reduce(0,T.zeros(2,2).long(),x,'mean')
x=T.ones(2,2,dtype=T.complex64);;x.scatter_reduce(0,T.zeros(2,2).long(),x,'prod')
"""

EMPTY = """
T.ones(3,0,requires_grad=True).prod(0).sum().backward()
x = T.ones(2,0,4,requires_grad=True);; T.autograd.grad(x.prod(0).sum(), x)[0]
x = T.ones(2,4,0,requires_grad=True);; T.autograd.grad(x.prod(0,keepdim=True).sum(), x)[0]
T.nn.functional.bilinear(T.ones(0,3),T.ones(0,3),T.ones(0,3,3))
T.nn.functional.grid_sample(T.ones(1,0,4,4),T.zeros(1,3,3,2),align_corners=False)
T.nn.functional.grid_sample(T.ones(0,2,4,4),T.zeros(0,3,3,2),mode='nearest',align_corners=False)
T.nn.functional.grid_sample(T.ones(0,2,4,4),T.zeros(0,3,3,2),mode='bicubic',align_corners=True)
T.nn.functional.instance_norm(T.ones(2,0,4))
T.nn.functional.dropout(T.ones(0).long())
m = T.nn.MultiheadAttention(4,2);; m(T.ones(3,0,4),T.ones(2,0,4),T.ones(2,0,4))[0].shape
m = T.nn.MultiheadAttention(4,2);; m(T.ones(3,0,4),T.ones(2,0,4),T.ones(2,0,4))[1].shape
m = T.nn.MultiheadAttention(4,2);; m(T.ones(0,2,4),T.ones(2,2,4),T.ones(2,2,4))[0].shape
m = T.nn.MultiheadAttention(4,2,batch_first=True);; m(T.ones(0,3,4),T.ones(0,3,4),T.ones(0,3,4),key_padding_mask=T.zeros(0,3).bool())[1].shape
m = T.nn.MultiheadAttention(4,2);; m(T.ones(3,0,4),T.ones(2,0,4),T.ones(2,0,4),need_weights=False)[0].shape
"""

SMALL = """
T.nn.functional.dropout(T.ones(2).long(),p=1.)
T.nn.functional.dropout(T.ones(2).bool(),p=1.,inplace=True)
T.nn.functional.dropout(T.ones(2).byte(),p=.5)
T.nn.functional.rms_norm(T.ones(2).bool(),(2,))
T.nn.functional.rms_norm(T.ones(()).cfloat(),())
T.nn.functional.rms_norm(T.ones(2,3).cfloat(),(2,))
T.nn.functional.batch_norm(T.ones(2,3).byte(),None,None,training=True)
T.nn.functional.bilinear(T.full((2,4),9).byte(),T.full((2,4),9).byte(),T.ones(2,4,4).byte())
T.nn.functional.conv_transpose2d(T.arange(12).reshape(1,1,3,4),T.arange(4).reshape(1,1,2,2),None,1,0,1,1,2)
T.nn.functional.conv_transpose2d(T.arange(24).reshape(1,2,3,4).cfloat(),T.arange(12).reshape(2,1,3,2).cfloat(),None,1,1,1,1,2)
T.nn.functional.conv_transpose1d(T.arange(8).reshape(1,2,4),T.arange(6).reshape(2,1,3),None,1,2,1,2,2)
"""

LAYOUTS = """
T.ones(3).expand(2,3)<T.ones(3,2).double().t()
T.atan2(T.ones(3).long().expand(2,3),T.ones(3,2).int().t())
T.ones(3).expand(2,3)*T.ones(3,2).t()
T.where(T.ones(3).bool().expand(2,3),T.ones(3,2).double().t(),T.ones(3,2).double().t())
T.ones(4,1,3).half().expand(4,2,3).transpose(0,2)+T.ones(4,2,3).transpose(0,2)
T.div(T.ones(3).long().expand(2,3),T.ones(3,2).bool().t(),out=T.zeros(0))
2**T.ones(3,2).t()
T.pow(1,T.ones(3,2).long().t())
T.float_power(2,T.ones(3,2).t())
T.gcd(T.ones(3,2).long().t(),T.ones(1).long())
T.lcm(T.ones(4,3,2).long().permute(2,0,1),T.ones(1).int())
T.igamma(T.ones(3,2).t(),T.ones(3,2).t()).stride()
T.zeros(2,3).t().flip(0).stride()
T.zeros(2,3,4).permute(2,0,1).flip(0).stride()
T.zeros(2,3,4).permute(1,0,2).flip(-1).stride()
T.zeros(2,3,4)[:,:,::2].flip(-1).stride()
T.zeros(2,3,4).permute(2,0,1)[::2].flip(-1).stride()
T.zeros(1,3).expand(2,3).flip(-1).stride()
T.zeros(3,1).expand(3,2).flip(-1).stride()
T.zeros(2,3).t().flip([]).stride()
T.zeros(2,3).t().flip((0,1)).stride()
T.flipud(T.zeros(2,3).t()).stride()
T.fliplr(T.zeros(2,3).t()).stride()
T.rot90(T.zeros(2,3)).stride()
T.rot90(T.zeros(2,3),2).stride()
T.rot90(T.zeros(2,3).t()).stride()
T.rot90(T.zeros(2,3).t(),2).stride()
T.rot90(T.zeros(2,3).t(),3).stride()
T.softmax(T.zeros(2,3).t(),0).stride()
T.softmax(T.zeros(2,3).t(),1).stride()
T.softmax(T.zeros(2,3,4).permute(2,0,1),0).stride()
T.softmax(T.zeros(2,3,4).permute(2,0,1),1).stride()
T.softmax(T.zeros(2,3,4).permute(2,0,1),2).stride()
T.softmax(T.zeros(2,3).t().double(),0).stride()
T.softmax(T.zeros(2,3).t().long(),0,dtype=T.float32).stride()
T.softmax(T.zeros(2,3).t(),0,dtype=T.float64).stride()
T.softmax(T.zeros(2,3,4,5).permute(0,3,1,2),1).stride()
T.softmax(T.zeros(2,3,4,5).permute(0,3,1,2),2).stride()
T.softmax(T.zeros(4,4).t(),1).stride()
T.softmax(T.zeros(4,4)[:,::2],1).stride()
T.softmax(T.zeros(3,1).expand(3,2),1).stride()
T.softmax(T.zeros(1,3).expand(2,3),1).stride()
T.softmax(T.zeros(1,3).expand(2,3).t(),1).stride()
T.softmax(T.zeros(2,3,4).mT,1).stride()
T.softmax(T.zeros(2,3,4).mT,-1).stride()
T.softmax(T.zeros(2,3,4).mT,0).stride()
T.log_softmax(T.zeros(2,3,4).mT,0).stride()
T.log_softmax(T.zeros(2,3,4).mT,1).stride()
T.log_softmax(T.zeros(2,3,4).mT,-1).stride()
T.log_softmax(T.zeros(2,3).t(),0).stride()
T.log_softmax(T.zeros(2,3).t(),1).stride()
T.log_softmax(T.zeros(2,3).t(),1,dtype=T.float64).stride()
T.nn.functional.interpolate(T.zeros(3,1,1),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,1),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,2),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,2).permute(0,2,1),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,2).permute(2,1,0),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,2,3),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,4,2,3).permute(0,3,1,2),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,4,2,3).permute(0,2,1,3),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,1,2,3),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,1,1,1),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,1,1),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(1,4,2,3).permute(0,3,1,2),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,4,2,3,2).permute(0,4,1,2,3),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,1,1,1),scale_factor=2).stride()
T.nn.functional.interpolate(T.zeros(3,2,1),size=1).stride()
x=T.zeros(3,2,1);y=T.nn.functional.interpolate(x,size=1);y.fill_(1);;x
x=T.zeros(3,2,1);y=T.nn.functional.interpolate(x,size=2)[...,:1];y.fill_(1);;x
x=T.zeros(3,2,2);y=T.nn.functional.interpolate(x,size=2);y.fill_(1);;x
x=T.zeros(3,2,1);y=T.nn.functional.interpolate(x,size=2,mode='linear')[...,:1];y.fill_(1);;x
x=T.zeros(3,2,1,1);y=T.nn.functional.interpolate(x,size=2,mode='bilinear')[...,:1,:1];y.fill_(1);;x
x=T.zeros(3,2,2,2);y=T.nn.functional.interpolate(x,size=2,mode='bilinear');y.fill_(1);;x
x=T.zeros(3,2,2,2);y=T.nn.functional.interpolate(x,size=2,mode='bicubic');y.fill_(1);;x
T.zeros(3,3,2).unfold(1,2,2)[[1]].stride()
T.zeros(4,3,5,4).mT[None,T.tensor([1]),[False,False,True]].stride()
T.zeros(4,3,5,4).mT[T.tensor([1,0])].stride()
T.zeros(4,3,5,4).mT[:,T.tensor([1,0])].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[:,T.tensor([1,0])].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[T.tensor([1,0])].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[T.tensor([[1,0],[0,0],[1,1]])].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[T.tensor([[1,0],[0,0],[1,1]]).t()].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[:,:,T.tensor([[1,0],[0,0],[1,1]]).t()].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[:,:,T.tensor([[1,0],[0,0],[1,1]])].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[:,T.tensor([1]),:,T.tensor([0,1])].stride()
T.zeros(4,3,5,4).permute(1,3,0,2)[T.tensor([1])].stride()
T.zeros(4,3,5,4).mT[T.tensor([1])].stride()
T.zeros(4,3,5,4).mT[T.tensor([0]),T.tensor([0])].stride()
T.zeros(4,3,5,4).mT[:,T.tensor([1])].stride()
T.zeros(1,3,5,4).mT[T.tensor([0])].stride()
T.zeros(1,3,5,4).mT[T.tensor([0,0])].stride()
T.zeros(3,2).t()[T.tensor([1])].stride()
T.zeros(3,2).t()[:,T.tensor([1])].stride()
T.zeros(3,2).t()[T.tensor([1,0])].stride()
T.zeros(3,2).t()[:,T.tensor([1,0])].stride()
T.zeros(2,3,2).mT[T.tensor([True,False])].stride()
T.zeros(2,3,2).mT[:,T.tensor([True,False])].stride()
T.zeros(5,2,2,2).unfold(2,2,1).scatter_add(1,T.zeros(5,2,1,2,2).long(),T.zeros(5,2,1,2,2)).stride()
T.zeros(2,2).t().scatter_add(1,T.zeros(2,2).long(),T.zeros(2,2)).stride()
T.zeros(2,3).t().scatter(1,T.zeros(2,2).long(),T.zeros(2,2)).stride()
T.zeros(2,3).t().scatter_reduce(1,T.zeros(2,2).long(),T.zeros(2,2),'sum').stride()
T.zeros(2,3).t().scatter_reduce(1,T.zeros(2,2).long(),T.zeros(2,2),'mean').stride()
T.zeros(2,3).t().scatter_reduce(1,T.zeros(2,2).long(),T.zeros(2,2),'amax').stride()
T.zeros(2,3).t().scatter_reduce(1,T.zeros(2,2).long(),T.zeros(2,2),'amax',include_self=False).stride()
T.zeros(2,3).t().scatter_reduce(1,T.zeros(2,2).long(),T.zeros(2,2),'prod').stride()
T.zeros(2,3)[:,::2].scatter_add(1,T.zeros(2,2).long(),T.zeros(2,2)).stride()
T.zeros(4,3)[::2].t().scatter_add(1,T.zeros(2,2).long(),T.zeros(2,2)).stride()
T.zeros(1,3).expand(2,3).scatter_add(1,T.zeros(2,2).long(),T.zeros(2,2)).stride()
T.zeros(3,1).expand(3,2).t().scatter_add(1,T.zeros(2,2).long(),T.zeros(2,2)).stride()
T.zeros(2,3).t().index_add(1,T.tensor([0]),T.zeros(3,1)).stride()
T.zeros(2,3).t().index_copy(1,T.tensor([0]),T.zeros(3,1)).stride()
T.zeros(2,3).t().index_fill(1,T.tensor([0]),1.).stride()
T.zeros(2,3).t().index_put((T.tensor([0]),),T.zeros(2)).stride()
T.zeros(2,3).t().masked_scatter(T.ones(3,2)>0,T.ones(6)).stride()
T.zeros(2,3).t().masked_fill(T.ones(3,2)>0,1.).stride()
T.zeros(2,3).t().slice_scatter(T.ones(1,2),0,0,1).stride()
T.zeros(2,3).t().select_scatter(T.ones(2),0,0).stride()
T.zeros(2,3).t().diagonal_scatter(T.ones(2)).stride()
T.renorm(T.zeros(2,3).t(),2,0,1.).stride()
x=T.ones(0,2,requires_grad=True);;T.cdist(x,x)
x=T.ones(2,0,requires_grad=True);;T.cdist(x,x)
x=T.ones(2,0,requires_grad=True);T.cdist(x,x).sum().backward();;x.grad
T.aminmax(T.ones(0,2,dtype=T.complex64),dim=1)
T.aminmax(T.ones(2,0))
"""


def shown(x: Any) -> Any:
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        strides = tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1) if x.numel() else ()
        return (str(x.dtype).split(".")[-1], tuple(x.shape), strides, x.requires_grad, x.is_leaf, x.detach().tolist())
    return tuple(map(shown, x)) if isinstance(x, (list, tuple)) else x


def outcome(library: Any, line: str) -> Any:
    made, _, call = line.rpartition(";;")
    env = {"T": library}
    try:
        exec(made.strip(), env)
        return shown(eval(call.strip(), env))
    except Exception as e:
        return e


def same(line: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = outcome(torch, line), outcome(flambeau, line)
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        assert isinstance(ours, type(theirs)), f"{line}: {theirs!r} / {ours!r}"
        return
    np.testing.assert_equal(ours, theirs, line)


@pytest.mark.parametrize("line", SHARED_MEMORY.strip().splitlines())
def test_memory_that_is_read_and_written(line):
    same(line)


@pytest.mark.parametrize("line", CHECKS.strip().splitlines())
def test_which_check_comes_first(line):
    same(line)


@pytest.mark.parametrize("line", EMPTY.strip().splitlines())
def test_what_has_no_elements(line):
    same(line)


@pytest.mark.parametrize("line", SMALL.strip().splitlines())
def test_integers_truths_and_complex_numbers_in_layers(line):
    same(line)


@pytest.mark.parametrize("line", DERIVATIVES.strip().splitlines())
def test_what_has_no_derivative(line):
    same(line)


@pytest.mark.parametrize("line", LAYOUTS.strip().splitlines())
def test_how_results_are_laid_out(line):
    same(line)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "bfloat16"])
def test_which_of_equal_elements_is_the_kth(dtype):
    random = np.random.default_rng(5)
    for n in (1, 2, 3, 4, 7, 8, 30, 300):
        values = random.integers(0, 5, (3, n)).astype(float)
        if "float" in dtype:
            values[random.random((3, n)) < 0.1] = np.nan
        for k in {1, 2, n // 2, n} - {0} if n > 1 else {1}:
            for axis, rows in ((1, values), (0, values.T)):
                theirs, ours = [T.kthvalue(T.tensor(rows.tolist(), dtype=getattr(T, dtype)), k, axis)[1].tolist() for T in (torch, flambeau)]
                assert ours == theirs, (n, k, axis)
