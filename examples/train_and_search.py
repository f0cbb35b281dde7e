"""Train on images without labels, then find the nearest neighbors of one of them. Half a minute on a CPU."""

from sklearn.datasets import load_digits

import nearfar
from nearfar.evaluate import find_nearest_neighbors

digits = load_digits()
images = (digits.images * 15).astype("uint8")  # (1797, 8, 8), 0 … 240

run = nearfar.fit("simclr", data=images, steps=100, batch_size=128)
vectors = run.encode(images)  # (1797, width)

similarity, index = find_nearest_neighbors(vectors, vectors[:1], k=6)
print("image 0 is a", digits.target[0])
for s, i in list(zip(similarity[0], index[0], strict=True))[1:]:
    print(f"image {int(i):4} is a {digits.target[i]}, cosine {float(s):.3f}")
