"""The programs that compare.py times: plain PyTorch, with no knowledge of who runs them.

A workload is a function `build(compiled)` that makes data and model and returns `step()`. One call of step() is one unit of work
and returns a tensor that depends on all of it. `compiled` is applied to what a user of torch.compile would compile, and is the
identity elsewhere.
"""
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 4096


class DecoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * width)
        self.from_heads = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        batch, time, width = x.shape
        qkv = self.to_qkv(self.attention_norm(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.from_heads(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, max_time, width=256, heads=4, layers=4):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(max_time, width)
        self.layers = nn.Sequential(*[DecoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.layers(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.shortcut = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return F.relu_(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


def resnet50():
    """ResNet-50 in channels_last."""
    stages, channels = [], 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(depth):
            stages.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), *stages,
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
    return model.to(memory_format=torch.channels_last)


def images(batch):
    return torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)


def trainer(loss_of, optimizer, compiled):
    """A training step over one batch: forward, backward, optimizer."""
    loss_of, update = compiled(loss_of), compiled(optimizer.step)

    def train(*batch):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*batch)
        loss.backward()
        update()
        return loss.detach()

    return train


def next_token_loss(model):
    def loss_of(ids):
        logits = model(ids)[:, :-1]
        return F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))

    return loss_of


def pointwise(compiled):
    """A chain of 20 pointwise operators over 4 Mi floats."""
    x, y = torch.randn(4 << 20), torch.randn(4 << 20)

    def step():
        gelu = x * 0.5 * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
        gated = torch.sigmoid(y) * gelu + torch.exp(-y * y)
        return torch.where(gated > 0, gated, 0.01 * gated) - x

    return compiled(step)


def softmax_ln(compiled):
    """Layer norm, GELU, softmax and a residual over 1024 rows of 1024."""
    x, weight, bias = torch.randn(1024, 1024), torch.randn(1024), torch.randn(1024)

    def step():
        hidden = F.gelu(F.layer_norm(x + 1, (1024,), weight, bias))
        return F.softmax(hidden * 2, -1) + x

    return compiled(step)


def mlp_train(compiled):
    """Training step of an MLP of 6 layers of 512 with layer norm and GELU, batch 64, Adam."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(512, 10))
    inputs, labels = torch.randn(64, 512), torch.randint(0, 10, (64,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    train = trainer(lambda a, b: F.cross_entropy(model(a), b), optimizer, compiled)
    return lambda: train(inputs, labels)


def gpt_train(compiled):
    """Training step of a GPT of 4 layers of 256, batch 2x128, AdamW."""
    model = Decoder(max_time=256)
    ids = torch.randint(0, VOCABULARY, (2, 128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    train = trainer(next_token_loss(model), optimizer, compiled)
    return lambda: train(ids)


def gpt_forward(compiled):
    """Forward pass of the same GPT over 1x64 tokens, without grad."""
    model = compiled(Decoder(max_time=256).eval())
    ids = torch.randint(0, VOCABULARY, (1, 64))

    @torch.no_grad()
    def step():
        return model(ids)

    return step


def train_on_lengths(compiled, batch_sizes):
    """64 training steps of the same GPT on batches of 29 lengths from 12 to 124, and of these sizes in turn."""
    model = Decoder(max_time=512)
    lengths = (torch.randint(3, 32, (64,), generator=torch.Generator().manual_seed(0)) * 4).tolist()
    batches = [torch.randint(0, VOCABULARY, (batch_sizes[i % len(batch_sizes)], length)) for i, length in enumerate(lengths)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    train = trainer(next_token_loss(model), optimizer, compiled)

    def epoch():
        for ids in batches:
            loss = train(ids)
        return loss

    return epoch


def varlen_train(compiled):
    """Training steps on batches of 4 of varying length."""
    return train_on_lengths(compiled, [4])


def varlen_batch_train(compiled):
    """Training steps on batches of 2 to 6 of varying length."""
    return train_on_lengths(compiled, [4, 2, 6, 3, 5])


def resnet50_infer(compiled):
    """ResNet-50 in channels_last over 4 images of 224x224, without grad."""
    model, inputs = compiled(resnet50().eval()), images(4)

    @torch.no_grad()
    def step():
        return model(inputs)

    return step


def resnet50_train(compiled):
    """Training step of ResNet-50 in channels_last, batch of 4 images of 224x224, SGD with momentum."""
    model = resnet50()
    inputs, labels = images(4), torch.randint(0, 1000, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    train = trainer(lambda a, b: F.cross_entropy(model(a), b), optimizer, compiled)
    return lambda: train(inputs, labels)


# Name: (build, warm-up steps, fewest timed steps a process). Fast steps are repeated for a fixed time.
WORKLOADS = {
    "pointwise": (pointwise, 5, 20),
    "softmax_ln": (softmax_ln, 5, 20),
    "mlp_train": (mlp_train, 5, 20),
    "gpt_train": (gpt_train, 4, 10),
    "gpt_forward": (gpt_forward, 5, 20),
    "resnet50_infer": (resnet50_infer, 4, 10),
    "resnet50_train": (resnet50_train, 4, 5),
    "varlen_train": (varlen_train, 1, 2),
    "varlen_batch_train": (varlen_batch_train, 1, 2),
}
