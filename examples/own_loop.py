"""Only the losses, in a loop of your own: two views of points on a ring, pulled together and spread out."""

import torch
from torch import nn

from nearfar import Scores
from nearfar.losses import alignment, info_nce, uniformity

generator = torch.Generator().manual_seed(0)
angle = torch.rand(512, generator=generator) * 6.28
points = torch.stack([angle.cos(), angle.sin()], dim=1)
net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for step in range(101):
    a, b = (net(points + 0.05 * torch.randn(points.shape, generator=generator)) for _ in range(2))
    loss = info_nce(Scores.from_views(a, b) / 0.5).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        a, b = (nn.functional.normalize(z, dim=1) for z in (a, b))
        print(f"step {step:3}  loss {loss.item():.3f}  alignment {alignment(a, b).item():.3f}  uniformity {uniformity(a).item():.2f}")
