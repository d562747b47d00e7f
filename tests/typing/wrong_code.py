"""Mistakes that a type checker must find: every line that ends in the comment `# wrong`.  Never run."""

from __future__ import annotations

import flambeau as torch

x = torch.ones(3)
torch.sin("x")  # wrong
torch.matmul(x, 3)  # wrong
print(x.nothing)  # wrong
x.softmax(dim="last")  # wrong
torch.nothing_of_the_kind(x)  # wrong
torch.cat(x, dim="rows")  # wrong
y: str = torch.add(x, 1)  # wrong
x.requires_grad = "yes"  # wrong
x.add(1).sub_("one")  # wrong
torch.nn.functional.relu([1.0])  # wrong
torch.linalg.inv(2)  # wrong
x.requires_grad = True
