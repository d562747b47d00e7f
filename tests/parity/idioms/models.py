"""Models as scripts write them: attention, convolutions, recurrence, custom functions, hooks."""

from __future__ import annotations

import collections
import io
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from harness import DEV, T, case, fill
from torch.autograd import Variable


@case
def seq2seq_attention():
    r = np.random.RandomState(0)

    class Enc(nn.Module):
        def __init__(s):
            super().__init__()
            s.emb = nn.Embedding(12, 8)
            s.gru = nn.GRU(8, 8, bidirectional=True, batch_first=True)
            s.fc = nn.Linear(16, 8)

        def forward(s, x, l):
            p = nn.utils.rnn.pack_padded_sequence(s.emb(x), l.cpu(), batch_first=True, enforce_sorted=False)
            o, h = s.gru(p)
            o, _ = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
            return o, torch.tanh(s.fc(torch.cat((h[-2], h[-1]), 1))).unsqueeze(0)

    class Attn(nn.Module):
        def __init__(s):
            super().__init__()
            s.Wa = nn.Linear(8, 8)
            s.Ua = nn.Linear(16, 8)
            s.Va = nn.Linear(8, 1)

        def forward(s, q, k, m):
            e = s.Va(torch.tanh(s.Wa(q) + s.Ua(k))).squeeze(2).masked_fill(~m, -1e10)
            w = F.softmax(e, -1).unsqueeze(1)
            return torch.bmm(w, k)

    class Dec(nn.Module):
        def __init__(s):
            super().__init__()
            s.emb = nn.Embedding(12, 8)
            s.att = Attn()
            s.cell = nn.GRUCell(24, 8)
            s.out = nn.Linear(8, 12)

        def forward(s, t, h, k, m):
            c = s.att(h.unsqueeze(1), k, m).squeeze(1)
            h = s.cell(torch.cat([s.emb(t), c], 1), h)
            return F.log_softmax(s.out(h), 1), h

    E, D = fill(Enc(), 1), fill(Dec(), 2)
    o = optim.SGD(list(E.parameters()) + list(D.parameters()), lr=0.1, momentum=0.9)
    out = []
    for _i in range(8):
        l = torch.tensor([5, 3, 4])
        x = torch.from_numpy(r.randint(1, 12, (3, 5))).to(DEV)
        m = (torch.arange(5)[None] < l[:, None]).to(DEV)
        y = x.flip(1)
        k, h = E(x, l)
        h = h[0]
        t = torch.zeros(3, dtype=torch.long, device=DEV)
        loss = 0
        for j in range(5):
            p, h = D(t, h, k, m)
            loss = loss + F.nll_loss(p, y[:, j])
            t = p.topk(1)[1].squeeze(1).detach() if j % 2 else y[:, j]
        o.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(D.parameters(), 1.0)
        o.step()
        out.append(loss.item() / 5)
    return out


@case
def char_lstm():
    text = "hello flambeau world " * 10
    ch = sorted(set(text))
    ix = {c: i for i, c in enumerate(ch)}
    d = torch.tensor([ix[c] for c in text], device=DEV)

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(len(ch), 10)
            s.l = nn.LSTM(10, 12, num_layers=2, dropout=0.0)
            s.f = nn.Linear(12, len(ch))

        def forward(s, x, h):
            y, h = s.l(s.e(x).view(-1, 1, 10), h)
            return s.f(y.view(-1, 12)), h

        def init(s):
            w = next(s.parameters())
            return (w.new_zeros(2, 1, 12), Variable(w.data.new(2, 1, 12).zero_()))

    m = fill(M())
    o = optim.Adagrad(m.parameters(), lr=0.05)
    sch = optim.lr_scheduler.ReduceLROnPlateau(o, "min", patience=1, factor=0.5)
    h = m.init()
    out = []
    for i in range(0, 150, 15):
        h = tuple(Variable(v.data) for v in h)
        y, h = m(d[i : i + 15], h)
        l = nn.CrossEntropyLoss()(y, d[i + 1 : i + 16])
        m.zero_grad()
        l.backward()
        o.step()
        sch.step(l.item())
        out.append(l.item())
    m.eval()
    with torch.no_grad():
        y, h = m(d[:1], m.init())
        p = F.softmax(y / 0.8, -1).data
        s = torch.multinomial(p, 1).item()
        assert 0 <= s < len(ch)
    return out + [o.param_groups[0]["lr"]]


@case
def unet():
    r = np.random.RandomState(0)

    def dc(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1),
            nn.GroupNorm(2, o),
            nn.SiLU(inplace=True),
        )

    class U(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = dc(1, 4)
            s.b = dc(4, 8)
            s.c = dc(8, 16)
            s.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
            s.d = dc(16, 8)
            s.u2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            s.e = dc(12, 4)
            s.o = nn.Conv2d(4, 1, 1)

        def forward(s, x):
            a = s.a(x)
            b = s.b(F.max_pool2d(a, 2))
            c = s.c(F.max_pool2d(b, 2))
            u = s.up(c)
            dy = b.size()[2] - u.size()[2]
            dx = b.size()[3] - u.size()[3]
            u = F.pad(u, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            d = s.d(torch.cat([b, u], dim=1))
            e = F.interpolate(s.u2(d), size=a.shape[2:], mode="nearest")
            return s.o(s.e(torch.cat([a, e], 1)))

    m = fill(U())
    o = optim.RMSprop(m.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    out = []
    for _i in range(4):
        x = T(r, 2, 1, 17, 18)
        y = (x > 0).float()
        p = m(x)
        pr = torch.sigmoid(p)
        inter = (pr * y).sum(dim=(-1, -2))
        dice = 1 - ((2 * inter + 1e-6) / (pr.sum((-1, -2)) + y.sum((-1, -2)) + 1e-6)).mean()
        l = F.binary_cross_entropy_with_logits(p, y) + dice
        o.zero_grad(set_to_none=True)
        l.backward()
        o.step()
        out.append(l.item())
    return out


@case
def tied_custom_function():
    class MyRelu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x.clamp(min=0) * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            gi = g.clone()
            gi[x < 0] = 0
            return gi * ctx.k, None

    class STE(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, g):
            return F.hardtanh(g)

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(9, 6)
            s.f = nn.Linear(6, 9, bias=False)
            s.f.weight = s.e.weight
            s.register_buffer("pe", torch.sin(torch.arange(6.0)))
            s.scale = nn.Parameter(torch.ones(()))
            s.heads = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.Linear(6, 6)})
            s.ws = nn.ParameterList([nn.Parameter(torch.zeros(6)) for _ in range(2)])

        def forward(s, x, h="a"):
            y = s.e(x) * math.sqrt(6) + s.pe
            y = MyRelu.apply(s.heads[h](y), 2.0) * s.scale + s.ws[0]
            return s.f(y + STE.apply(y) + s.ws[1])

    m = fill(M())
    assert len(list(m.parameters())) == 8 and "pe" in m.state_dict()
    o = optim.NAdam(m.parameters(), lr=1e-2)
    out = []
    seen = []
    hk = m.heads["a"].register_forward_hook(lambda mod, i, o: seen.append(o.shape))
    gs = []
    m.scale.register_hook(lambda g: gs.append(g.item()) or g * 0.5)
    bk = m.f.register_full_backward_hook(lambda mod, gi, go: seen.append(go[0].abs().sum().item()))
    for i in range(6):
        x = torch.tensor([1, 2, 3, i], device=DEV)
        l = F.cross_entropy(m(x, "ab"[i % 2]), x.roll(1), label_smoothing=0.1)
        m.zero_grad()
        l.backward()
        o.step()
        out.append(l.item())
    hk.remove()
    bk.remove()
    return out + gs + [s for s in seen if isinstance(s, float)] + [len(seen)]


@case
def checkpointing():
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    r = np.random.RandomState(0)
    m = fill(nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)]))
    x = T(r, 3, 8).requires_grad_()
    y = x
    for b in m:
        y = checkpoint(b, y, use_reentrant=False)
    y.sum().backward()
    a = [p.grad.sum().item() for p in m.parameters()] + [x.grad.sum().item()]
    m.zero_grad()
    checkpoint_sequential(m, 2, x, use_reentrant=False).pow(2).sum().backward()
    return a + [p.grad.sum().item() for p in m.parameters()]


@case
def transformer_mha():
    r = np.random.RandomState(0)
    e = fill(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"), 2), 3)
    d = fill(nn.Transformer(8, 2, 1, 1, 16, dropout=0.0), 4)
    x = T(r, 2, 5, 8)
    pm = torch.tensor([[0, 0, 0, 1, 1], [0] * 5], dtype=torch.bool, device=DEV)
    y = e(x, src_key_padding_mask=pm)
    q = d(x.transpose(0, 1), x.transpose(0, 1), tgt_mask=nn.Transformer.generate_square_subsequent_mask(5).to(DEV))
    (y.pow(2).mean() + q.std()).backward()
    a = fill(nn.MultiheadAttention(8, 2), 5)
    z, w = a(x, x, x, need_weights=True, average_attn_weights=False)
    e.eval()
    with torch.no_grad():
        ye = e(x)
    return [y[~pm].sum().item(), q.sum().item(), z.sum().item(), w[0, 0, 0, 0].item(), ye.abs().sum().item()] + [
        p.grad.abs().sum().item() for p in list(e.parameters()) + list(d.parameters())
    ]


@case
def vae_kl():
    r = np.random.RandomState(0)
    from torch.distributions import Categorical, Independent, Normal, kl_divergence

    E_ = fill(nn.Linear(6, 8))
    D = fill(nn.Linear(4, 6), 1)
    o = optim.Adamax(list(E_.parameters()) + list(D.parameters()), lr=1e-2)
    out = []
    for _i in range(6):
        x = T(r, 5, 6)
        mu, lv = E_(x).chunk(2, -1)
        z = mu + torch.exp(0.5 * lv) * T(r, 5, 4)
        rec = F.mse_loss(D(z), x, reduction="sum")
        q = Normal(mu, torch.exp(0.5 * lv))
        kl = kl_divergence(q, Normal(torch.zeros_like(mu), torch.ones_like(mu))).sum()
        kl2 = -0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())
        l = rec + kl
        o.zero_grad()
        l.backward()
        o.step()
        out += [l.item(), kl2.item()]
    c = Categorical(logits=T(r, 3, 4))
    return out + [c.entropy().sum().item(), c.log_prob(torch.tensor([0, 1, 2], device=DEV)).sum().item(), Independent(q, 1).log_prob(mu).sum().item()]


@case
def style_misc():
    r = np.random.RandomState(0)
    x = T(r, 2, 3, 8, 8).requires_grad_()
    b, c, h, w = x.size()
    f = x.view(b, c, h * w)
    G = f.bmm(f.transpose(1, 2)) / (c * h * w)
    tv = (x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[..., 1:] - x[..., :-1]).pow(2).mean()
    (G.norm() + tv).backward()
    th = torch.tensor([[[1, 0.1, 0], [0, 0.9, 0.2]]] * 2, device=DEV)
    gr = F.grid_sample(x, F.affine_grid(th, x.size(), align_corners=False), align_corners=False)
    u = F.unfold(x, 3, padding=1)
    fo = F.fold(u, (8, 8), 3, padding=1)
    ps = F.pixel_shuffle(T(r, 1, 8, 2, 2), 2)
    y = F.one_hot(torch.arange(3, device=DEV) % 2, 4).float()
    s = torch.einsum("bchw,bdhw->bcd", x, x)
    ss = F.gumbel_softmax(T(r, 2, 4), tau=1, hard=True).sum()
    tk = torch.topk(x.flatten(1), 3)
    so, ix = x.flatten().sort(descending=True)
    cs = torch.cumsum(F.softmax(so[:20], -1), -1)
    sc = torch.zeros(3, 5, device=DEV).scatter_(1, torch.tensor([[0], [1], [4]], device=DEV), 1.5)
    ms = torch.tril(torch.ones(4, 4, device=DEV)).masked_fill(torch.triu(torch.ones(4, 4, device=DEV), 1) == 1, -1.0)
    a = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")[0].sum()
    return [
        G.sum().item(),
        tv.item(),
        x.grad.sum().item(),
        gr.sum().item(),
        u.sum().item(),
        fo.sum().item(),
        ps.sum().item(),
        y.sum().item(),
        s.sum().item(),
        ss.item(),
        tk.values.sum().item(),
        cs[5].item(),
        sc.sum().item(),
        ms.sum().item(),
        a.item(),
        float(np.allclose(torch.fft.ifft2(torch.fft.fft2(x)).real.detach().cpu().numpy(), x.detach().cpu().numpy(), atol=1e-5)),
    ]


@case
def prune_parametrize_misc():
    from torch.nn.utils import parameters_to_vector, vector_to_parameters, weight_norm
    from torch.nn.utils.parametrizations import spectral_norm

    r = np.random.RandomState(0)
    m = weight_norm(fill(nn.Conv1d(3, 4, 3, padding=2, dilation=2)))
    y = m(T(r, 2, 3, 9))
    y.sum().backward()
    s = fill(nn.Linear(5, 5))
    v = parameters_to_vector(s.parameters())
    vector_to_parameters(v * 2, s.parameters())
    sn = spectral_norm(nn.Linear(4, 4).to(DEV))
    sn(T(r, 1, 4)).sum().backward()
    out = [y.sum().item(), m.weight_g.grad.sum().item(), m.weight_v.grad.abs().sum().item(), v.sum().item(), s.weight.sum().item()]
    net = nn.Sequential(collections.OrderedDict([("c", nn.Conv2d(3, 4, 3)), ("r", nn.ReLU()), ("f", nn.Flatten()), ("l", nn.LazyLinear(2))])).to(DEV)
    out.append(net(T(r, 2, 3, 5, 5)).shape[1])
    net.apply(lambda q: nn.init.constant_(q.weight, 0.1) if isinstance(q, (nn.Conv2d, nn.Linear)) else None)
    for q in net.children():
        out.append(sum(p.numel() for p in q.parameters()))
    for n, p in net.named_parameters():
        if "c." in n:
            p.requires_grad = False
    o = optim.Adam(filter(lambda p: p.requires_grad, net.parameters()))
    out.append(len(o.param_groups[0]["params"]))

    b = io.BytesIO()
    torch.save({"m": net.state_dict(), "o": o.state_dict(), "e": 3}, b)
    b.seek(0)
    ck = torch.load(b, map_location="cpu")
    net.load_state_dict(ck["m"], strict=True)
    o.load_state_dict(ck["o"])
    out.append(ck["e"])
    e = nn.EmbeddingBag(6, 3, mode="sum").to(DEV)
    fill(e)
    out.append(e(torch.tensor([0, 1, 2, 3], device=DEV), torch.tensor([0, 2], device=DEV)).sum().item())
    out.append(
        nn.CTCLoss()(T(r, 6, 2, 4).log_softmax(2), torch.tensor([[1, 2], [3, 1]], device=DEV), torch.tensor([6, 6]), torch.tensor([2, 2])).item()
    )
    return out
