"""torch_geometric: layers, batches of graphs, neighbours' samples by Python; captum: attributions."""

from __future__ import annotations

import fed
import torch
from fed import case, fill, integers, numbers, steps


@case("graph convolutions")
def convolutions():
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, TransformerConv
    x, edges, y = numbers(10, 6), integers(10, 2, 24), integers(3, 10)
    made = []
    for kind in (lambda: GCNConv(6, 3), lambda: GATConv(6, 3, heads=2, concat=False), lambda: SAGEConv(6, 3),
                 lambda: GINConv(torch.nn.Sequential(torch.nn.Linear(6, 3))), lambda: TransformerConv(6, 3)):
        net = fill(kind(), 0.3)
        made.append(steps(net, lambda net=net: torch.nn.functional.cross_entropy(net(x, edges), y)))
    return made


@case("batches of graphs and pooling")
def batches():
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GCNConv, global_mean_pool
    graphs = [Data(x=numbers(4 + i, 6, seed=i).cpu(), edge_index=integers(4 + i, 2, 9, seed=i).cpu(), y=torch.tensor([i % 2])) for i in range(6)]
    net, head = fill(GCNConv(6, 8), 0.3), fill(torch.nn.Linear(8, 2), 0.3)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for batch in DataLoader(graphs, batch_size=3):
        batch = batch.to(fed.DEVICE)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(global_mean_pool(net(batch.x, batch.edge_index).relu(), batch.batch)), batch.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@case("graphs: transforms and utilities")
def utilities():
    from torch_geometric import utils
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddSelfLoops, NormalizeFeatures, ToUndirected
    data = ToUndirected()(Data(x=numbers(5, 3).abs().cpu(), edge_index=integers(5, 2, 6).cpu()))
    data = NormalizeFeatures()(AddSelfLoops()(data))
    return [data.edge_index, data.x, utils.degree(data.edge_index[0]), utils.to_dense_adj(data.edge_index),
            utils.softmax(numbers(6).cpu(), torch.tensor([0, 0, 1, 1, 1, 2]))]


@case("captum")
def captum_():
    from captum.attr import DeepLift, FeatureAblation, GuidedBackprop, InputXGradient, IntegratedGradients, LayerGradCam, NoiseTunnel, Occlusion, Saliency
    net = fill(torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 3)), 0.2)
    x = numbers(2, 1, 8, 8)
    made = [kind(net).attribute(x, target=1).sum((1, 2, 3)) for kind in (IntegratedGradients, Saliency, InputXGradient, DeepLift, GuidedBackprop)]
    made.append(LayerGradCam(net, net[0]).attribute(x, target=1)[0, 0, 0])
    made.append(Occlusion(net).attribute(x, sliding_window_shapes=(1, 4, 4), strides=(1, 4, 4), target=0)[0, 0, 0])
    made.append(FeatureAblation(net).attribute(x[:1, :, :2, :2].expand(1, 1, 2, 2).repeat(1, 1, 4, 4), target=0)[0, 0, 0])
    _ = NoiseTunnel
    return made


fed.main()
