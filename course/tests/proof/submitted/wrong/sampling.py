"""Which samples a process reads, and when: what people get wrong when they share out the data."""

from course.tests.proof.submissions import Wrong, program

_OWN = "own = indices.tensor_split(world)[rank]\n"
_ORDER = "batches = order(len(train_data), options.seed, epoch).split(options.batch)\n"
_LOADER = (
    "self.loader = DataLoader(Lookup(train), batch_sampler=self.sampler, collate_fn=lambda batch: batch)",
    "self.loader = DataLoader(",
)

_STREAM = '''
class Stream(torch.utils.data.IterableDataset):
    """The batches of an epoch, drawn in the loader's worker."""

    def __init__(self, data, sampler):
        self.data, self.sampler = data, sampler

    def __iter__(self):
        for indices in self.sampler:
            yield self.data.batch(indices)


class Journal:
    """Log,'''

WRONG = [
    Wrong(
        name="no-sampler",
        line="A.coverage",
        messages=("everybody-sees-all",),
        edits=(program(_OWN, "own = indices\n"),),
        fault="F01",
        why="every process trains on every batch as a whole",
    ),
    Wrong(
        name="own-order-of-everything",
        line="A.coverage",
        messages=("everybody-sees-all",),
        edits=(
            program(
                _ORDER,
                "batches = order(len(train_data), options.seed + 7919 * dist.get_rank(), epoch).split(options.batch)\n",
            ),
            program(_OWN, "own = indices\n"),
        ),
        fault="F01",
        why="every process goes through all of the data, each in its own order",
    ),
    Wrong(
        name="same-small-batches",
        line="A.coverage",
        messages=("everybody-sees-all",),
        edits=(
            program(_ORDER, _ORDER.replace("options.batch)", "max(1, options.batch // dist.get_world_size()))")),
            program(_OWN, "own = indices\n"),
            program(
                "steps_of_epoch = math.ceil(len(train_data) / options.batch)",
                "steps_of_epoch = math.ceil(len(train_data) / max(1, options.batch // dist.get_world_size()))",
            ),
        ),
        fault="F02",
        why="the batch was divided by the number of processes, but all of them take the same small batches",
    ),
    Wrong(
        name="sampler-not-used",
        line="A.coverage",
        messages=("everybody-sees-all",),
        base="trainer",
        edits=(
            program(
                _LOADER[0],
                _LOADER[1] + "Lookup(train), batch_size=settings.batch, shuffle=True, collate_fn=lambda batch: batch)",
            ),
        ),
        fault="F03",
        why="the sampler is built, and the loader shuffles by itself",
    ),
    Wrong(
        name="sampler-and-shuffle",
        line="A.runs",
        messages=("raised",),
        base="trainer",
        edits=(program(_LOADER[0], _LOADER[0].replace("batch_sampler=self", "shuffle=True, batch_sampler=self")),),
        fault="F04",
        why="a loader takes a sampler or shuffles, not both",
    ),
    Wrong(
        name="not-shuffled",
        line="A.coverage",
        messages=("not-shuffled",),
        edits=(program(_ORDER, "batches = torch.arange(len(train_data)).split(options.batch)\n"),),
        fault="F05",
        why="the shuffling was lost when the data were shared out",
    ),
    Wrong(
        name="no-epoch-in-the-order",
        line="A.coverage",
        messages=("same-order",),
        edits=(program(_ORDER, "batches = order(len(train_data), options.seed, 0).split(options.batch)\n"),),
        fault="F06",
        why="every epoch has the order of the first one",
    ),
    Wrong(
        name="epoch-for-the-wrong-sampler",
        line="A.coverage",
        messages=("same-order",),
        base="trainer",
        edits=(program("self.sampler.epoch = number\n", "self.loader.sampler.epoch = number\n"),),
        fault="F07",
        why="with a batch sampler, the loader's sampler is another one, which nobody asks",
    ),
    Wrong(
        name="epoch-does-not-reach-the-worker",
        line="A.coverage",
        messages=("same-order",),
        base="trainer",
        edits=(
            program('\nclass Journal:\n    """Log,', "\n" + _STREAM.lstrip("\n")),
            program(
                _LOADER[0],
                _LOADER[1] + "Stream(train, self.sampler), batch_size=None, num_workers=1, persistent_workers=True)",
            ),
        ),
        fault="F08",
        why="a persistent worker keeps the sampler that it was born with",
    ),
    Wrong(
        name="seed-differs-by-rank",
        line="A.coverage",
        messages=("overlap",),
        edits=(program(_ORDER, _ORDER.replace("options.seed,", "options.seed + dist.get_rank(),")),),
        fault="F09",
        why="each process takes its part of another order",
    ),
    Wrong(
        name="order-without-a-seed",
        line="A.coverage",
        messages=("overlap",),
        edits=(
            program("import math\n", "import math\nimport random\n"),
            program(
                _ORDER,
                "numbers = list(range(len(train_data)))\n"
                "        random.shuffle(numbers)\n"
                "        batches = torch.tensor(numbers).split(options.batch)\n",
            ),
        ),
        fault="F13",
        why="an order that is drawn anew on each process is another one on each",
    ),
    Wrong(
        name="with-replacement",
        line="A.coverage",
        messages=("overlap",),
        edits=(
            program(
                _ORDER,
                "drawn = torch.Generator().manual_seed(options.seed + epoch)\n"
                "        weights = torch.ones(len(train_data))\n"
                "        picked = torch.multinomial(weights, len(train_data), replacement=True, generator=drawn)\n"
                "        batches = picked.split(options.batch)\n",
            ),
        ),
        fault="F10",
        why="a weighted sampler draws with replacement",
    ),
    Wrong(
        name="index-ignored",
        line="A.coverage",
        messages=("overlap",),
        edits=(program(_OWN, "own = torch.randint(len(data), (len(indices.tensor_split(world)[rank]),))\n"),),
        fault="F12",
        why="which sample is read has nothing to do with the order",
    ),
    Wrong(
        name="drop-last",
        line="A.coverage",
        messages=("dropped",),
        edits=(
            program(
                _ORDER, _ORDER + "        batches = [indices for indices in batches if len(indices) == options.batch]\n"
            ),
            program("math.ceil(len(train_data) / options.batch)", "len(train_data) // options.batch"),
        ),
        fault="F15",
        why="the last, smaller batch is left out",
    ),
    Wrong(
        name="rest-of-each-batch-dropped",
        line="A.coverage",
        messages=("dropped",),
        edits=(
            program(
                _OWN,
                "own = indices[rank * (len(indices) // world) : (rank + 1) * (len(indices) // world)]\n",
            ),
        ),
        fault="F17",
        why="a batch that does not divide by the number of processes loses its rest",
    ),
    Wrong(
        name="padded",
        line="A.coverage",
        messages=("padded",),
        edits=(
            program(
                _OWN,
                "filled = torch.cat([indices, indices.repeat(world)[: -len(indices) % world]])\n"
                "        own = filled[rank::world]\n",
            ),
        ),
        fault="F18",
        why="batches are filled up, so that all processes have equally many samples",
    ),
    Wrong(
        name="distributed-sampler",
        line="A.coverage",
        messages=("padded",),
        base="trainer",
        edits=(
            program(
                _LOADER[0],
                "self.shares = torch.utils.data.distributed.DistributedSampler(train, seed=settings.seed)\n"
                "        part = -(-settings.batch // processes.world)\n"
                "        self.loader = DataLoader(train, batch_size=part, sampler=self.shares)",
            ),
            program("self.sampler.epoch = number\n", "self.shares.set_epoch(number)\n"),
            program("self.sampler.sizes(), self.loader, strict=True", "self.sampler.sizes(), self.loader"),
        ),
        fault="F18",
        why="torch's own sampler has its own order, and fills up",
    ),
    Wrong(
        name="batch-per-process",
        line="A.coverage",
        messages=("batch-per-process",),
        edits=(
            program(_ORDER, _ORDER.replace("options.batch)", "options.batch * dist.get_world_size())")),
            program(
                "steps_of_epoch = math.ceil(len(train_data) / options.batch)",
                "steps_of_epoch = math.ceil(len(train_data) / (options.batch * dist.get_world_size()))",
            ),
        ),
        fault="F16",
        why="--batch was taken for the batch of one process",
    ),
    Wrong(
        name="float-batch",
        line="A.runs",
        messages=("raised",),
        edits=(program(_ORDER, _ORDER.replace("options.batch)", "options.batch / dist.get_world_size())")),),
        fault="F16",
        why="a batch divided by / is no whole number",
    ),
    Wrong(
        name="epoch-cut-into-parts",
        line="A.coverage",
        messages=("other-order",),
        base="own_loop",
        edits=(
            program(
                "numbers = order(o.samples, o.seed, epoch).tolist()\n",
                "numbers = team.own(order(o.samples, o.seed, epoch).tolist())\n"
                "        each, steps = -(-o.batch // team.size), -(-o.samples // o.batch)\n",
            ),
            program("for first in range(0, o.samples, o.batch):\n", "for first in range(0, steps * each, each):\n"),
            program(
                "batch = numbers[first : first + o.batch]\n",
                "batch = numbers[first : first + each if first + each < steps * each else None]\n",
            ),
            program("x, y = train_set.batch(team.own(batch))\n", "x, y = train_set.batch(batch)\n"),
        ),
        fault="F14",
        why="the epoch is cut into one part for each process, instead of every batch",
    ),
    Wrong(
        name="a-look-at-the-data",
        line="A.coverage",
        messages=("padded",),
        edits=(
            program(
                "    out_of_time = False\n",
                "    out_of_time = False\n"
                "    if dist.get_rank() == 0:\n"
                '        print("shape", tuple(train_data.batch(range(9))[0].shape))\n',
            ),
        ),
        fault="F19",
        why="rank 0 reads some samples before the training, for a look at them",
    ),
    Wrong(
        name="read-once-for-all-epochs",
        line="A.coverage",
        messages=("not-read",),
        edits=(
            program(
                "    network = make_model(options.variant, options.seed)\n",
                "    network = make_model(options.variant, options.seed)\n"
                "    held_signals, held_labels = train_data.batch(range(len(train_data)))\n"
                "    train_data = torch.utils.data.TensorDataset(held_signals, held_labels)\n",
            ),
            program("signals, labels = data.batch(own.tolist())", "signals, labels = data[own]"),
        ),
        fault="F21",
        why="everything is read into memory by every process before the first epoch",
    ),
    Wrong(
        name="lopsided",
        line="A.coverage",
        messages=("unequal-parts",),
        edits=(
            program(
                _OWN,
                "own = indices.tensor_split([len(indices) - world + 1 + k for k in range(world - 1)])[rank]\n",
            ),
        ),
        fault="F14",
        why="rank 0 takes all of a batch but one sample for each of the others",
    ),
    Wrong(
        name="wrong-data-for-training",
        line="A.coverage",
        messages=("not-read",),
        edits=(
            program(
                "train_data = Signals(options.samples, seed=options.data_seed)",
                "train_data = Signals(options.samples, seed=options.data_seed + 1_000_000)",
            ),
        ),
        fault=("F65"),
        why="it trains on the samples that it evaluates on",
    ),
    Wrong(
        name="wrong-data-for-evaluation",
        line="A.coverage",
        messages=("evaluates-on-training",),
        edits=(
            program(
                "eval_data = Signals(options.eval_samples, seed=options.data_seed + 1_000_000)",
                "eval_data = Signals(options.eval_samples, seed=options.data_seed)",
            ),
        ),
        fault="F65",
        why="it evaluates on samples that it trains on",
    ),
]
