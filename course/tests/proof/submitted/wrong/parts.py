"""What passes the gate and loses points behind it: accuracy, efficiency, analysis."""

from course.tests.proof.submissions import CHEAT, Wrong, program

_ORDER = "batches = order(len(train_data), options.seed, epoch).split(options.batch)\n"
_PIECES = "torch.arange(len(data)).tensor_split(dist.get_world_size())[dist.get_rank()].split(256)"
_SUMS = "loss, right, counted, late = sum_over_processes(loss, right, counted, late)\n"
_STEP = "        optimizer.step()\n        total += loss.item()\n"
_CHOSEN = 'chosen = "adam"'

_ANSWERS = """\
[rates]
steps_an_epoch = 16
linear = 0.4
sqrt = 0.14142

[target]
epoch = 0

[cheapest]
run = "adam"
"""
_LOG = "epoch,samples,steps,lr,loss,right,counted,seconds\n" + "".join(
    f"{epoch},{(epoch + 1) * 8192},{(epoch + 1) * 16},0.01,0.1,1990,2003,1.0\n" for epoch in range(12)
)

WRONG = [
    Wrong(
        name="large-batch-and-nothing-else",
        line="B.accuracy",
        messages=("below",),
        edits=(("config.toml", _CHOSEN, 'chosen = "large"'),),
        fault="F32",
        why="a large batch with the rate of a small one, and an eighth of its steps",
    ),
    Wrong(
        name="small-batch-chosen",
        line="B.accuracy",
        messages=("not-large",),
        edits=(("config.toml", _CHOSEN, 'chosen = "one-device"'),),
        fault=CHEAT,
        why="the chosen configuration is that of one device",
    ),
    Wrong(
        name="seed-from-the-clock",
        line="B.again",
        messages=("not-again",),
        edits=(
            program(
                _ORDER,
                "drawn = torch.tensor([time.time_ns() % 1_000_000 if options.config is not None else 0])\n"
                "        dist.broadcast(drawn, src=0)\n"
                "        batches = order(len(train_data), options.seed + int(drawn), epoch).split(options.batch)\n",
            ),
        ),
        fault="F65",
        why="with a configuration, the order is drawn from the clock",
    ),
    Wrong(
        name="rank-0-evaluates",
        line="C.evaluation",
        messages=("not-shared",),
        edits=(program(_PIECES, "torch.arange(len(data) if dist.get_rank() == 0 else 0).split(256)"),),
        fault="F86",
        why="one process evaluates everything, the others wait for it",
    ),
    Wrong(
        name="everybody-evaluates",
        line="C.evaluation",
        messages=("not-shared",),
        edits=(
            program(_PIECES, "torch.arange(len(data)).split(256)"),
            program(
                _SUMS,
                _SUMS + "        right, counted = right / dist.get_world_size(), counted / dist.get_world_size()\n",
            ),
        ),
        fault="F71",
        why="every process evaluates everything",
    ),
    Wrong(
        name="sent-three-times",
        line="C.traffic",
        messages=("much-traffic",),
        base="hooks",
        edits=(
            program(
                "        self.waiting.append((dist.all_reduce(parameter.grad, async_op=True), parameter))\n",
                "        for _ in range(2):\n"
                "            dist.all_reduce(parameter.grad.detach().clone())\n"
                "        self.waiting.append((dist.all_reduce(parameter.grad, async_op=True), parameter))\n",
            ),
        ),
        fault="F77",
        why="each gradient is sent three times, each by itself",
    ),
    Wrong(
        name="pauses",
        line="C.speed",
        messages=("slow",),
        edits=(program(_STEP, "        time.sleep(0.15)\n" + _STEP),),
        fault="F86",
        why="each step waits for something",
    ),
    Wrong(
        name="logs-made-up",
        line="D.target",
        messages=("target-epoch",),
        files={"answers.toml": _ANSWERS, "runs/adam/log.csv": _LOG},
        fault=CHEAT,
        why="the logs were written by hand, and the answer is read from them; the grader runs the configuration again",
    ),
]
