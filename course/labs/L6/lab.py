# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L6 · Bug zoo
#
# Most mistakes in data-parallel training raise no error. The loss falls, the log looks fine, and the result is a
# little worse than it should be, or a training of eight GPUs is one of a single GPU, eight times. In this lab you
# meet twelve of them.
#
# Below is one program that is **right**. Read it until you know why each line is there: it has everything that a
# script for several processes needs. Then come twelve copies, each with one fault. For each: find it, mend it, and
# give it its name.
#
# All twelve were found in real programs, most of them many times.

# %%
from paceline_course.notebook import *

show = lab("L6")
print(show.program())

# %% [markdown]
# ## How to look
#
# A few questions find nearly everything:
#
# 1. Does every process call the same collectives, in the same order, equally often?
# 2. Does every process see other samples, all of them together each sample once, and another order in each epoch?
# 3. Do all processes hold the same weights after a step?
# 4. Are the weights those that one process would have, with the same batches?
# 5. Which numbers are a process's own, and which are everybody's? On which of the two is a decision made?
# 6. Who writes?
#
# The check of each program asks all of them, on two and three processes. What it says is a symptom; the cause is for
# you to find.
#
# ## Names of causes
#
# Put the name into the first line of the program, `CAUSE = "..."`.

# %%
show.causes()

# %% [markdown] exercise="L6.1" part="task"
# ### Exercise L6.1 · Every epoch the same
#
# The training seems fine. Its author compared the first samples of two epochs, by chance, and found them equal.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.1" part="starter" expects="same-order"
# the solution, but
# - CAUSE = "set_epoch"
# + CAUSE = ""
# - sampler.set_epoch(epoch)

# %% [markdown] exercise="L6.1" part="hint"
# Who decides on the order of samples, and what does that depend on?

# %% [markdown] exercise="L6.1" part="hint"
# The sampler draws an order from its seed and the epoch. How does it know the epoch?

# %% [markdown] exercise="L6.1" part="hint"
# `sampler.set_epoch(epoch)`, at the beginning of each epoch.

# %% exercise="L6.1" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "set_epoch"

# %% [markdown] exercise="L6.1" part="explanation"
# The order is then that of epoch 0 for ever. The effect on accuracy is small and real, and no curve shows it. It is
# the most frequent fault of all, since the line looks as if it did nothing.

# %% exercise="L6.1" part="wrong" expects="same-order"
# the solution, but
# - sampler.set_epoch(epoch)

# %% exercise="L6.1" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "set_epoch"
# + CAUSE = ""

# %% exercise="L6.1" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "set_epoch"
# + CAUSE = "sampler"

# %% [markdown] exercise="L6.2" part="task"
# ### Exercise L6.2 · Larger steps
#
# With one process and a batch of 8 this program trained well. With three processes it is said to need another
# learning rate, and its author wonders why gradients are always clipped.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.2" part="starter" expects="unequal"
# the solution, but
# - CAUSE = "summed-loss"
# + CAUSE = ""
# - loss = nn.functional.cross_entropy(ddp(points), labels)
# + loss = nn.functional.cross_entropy(ddp(points), labels, reduction="sum")
# - total += loss.item() * len(labels)
# + total += loss.item()

# %% [markdown] exercise="L6.2" part="hint"
# What does a gradient scale with, in the one case and in the other?

# %% [markdown] exercise="L6.2" part="hint"
# The average over processes is a mean over all samples only if each process's loss is a mean over its own.

# %% [markdown] exercise="L6.2" part="hint"
# Leave out `reduction="sum"`.

# %% exercise="L6.2" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "summed-loss"

# %% [markdown] exercise="L6.2" part="explanation"
# A sum over a process's samples, averaged over processes, is the global mean times the batch of a process: the step
# depends on how many samples a process has. Clipping hides it, because a clipped gradient has the same length either
# way, so that it is only seen when gradients become short.

# %% exercise="L6.2" part="wrong" expects="unequal"
# the solution, but
# - loss = nn.functional.cross_entropy(ddp(points), labels)
# + loss = nn.functional.cross_entropy(ddp(points), labels, reduction="sum")
# - total += loss.item() * len(labels)
# + total += loss.item()

# %% exercise="L6.2" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "summed-loss"
# + CAUSE = ""

# %% exercise="L6.2" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "summed-loss"
# + CAUSE = "clipping"

# %% [markdown] exercise="L6.3" part="task"
# ### Exercise L6.3 · The careful evaluation
#
# Evaluation takes long, so its author has it done by one process. Since then the program does not end.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.3" part="starter" expects="hang"
# the solution, but
# - CAUSE = "rank-0-collective"
# + CAUSE = ""
# - right, counted = evaluate(ddp.module, eval_data)
# + right = counted = 0
# + if rank == 0:
# +     right, counted = evaluate(ddp.module, eval_data)

# %% [markdown] exercise="L6.3" part="hint"
# Which of its functions does process 0 call that the others do not?

# %% [markdown] exercise="L6.3" part="hint"
# `evaluate` contains an `all_reduce`. When does that end?

# %% [markdown] exercise="L6.3" part="hint"
# Every process has to call `evaluate`.

# %% exercise="L6.3" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "rank-0-collective"

# %% [markdown] exercise="L6.3" part="explanation"
# A collective inside a function is easily overlooked by whoever calls the function. The card of the hang names both:
# the process that waits, with its line, and those that never came. If the evaluation shall run on one process only,
# it may contain no collective at all, and the others will wait for it in the next one: that is allowed, and slow.

# %% exercise="L6.3" part="wrong" expects="hang"
# the solution, but
# - right, counted = evaluate(ddp.module, eval_data)
# + right = counted = 0
# + if rank == 0:
# +     right, counted = evaluate(ddp.module, eval_data)

# %% exercise="L6.3" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "rank-0-collective"
# + CAUSE = ""

# %% exercise="L6.3" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "rank-0-collective"
# + CAUSE = "early-stop"

# %% [markdown] exercise="L6.4" part="task"
# ### Exercise L6.4 · Twice as fast
#
# This one was converted in five minutes. Each epoch takes as long as on one process.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.4" part="starter" expects="shared"
# the solution, but
# - CAUSE = "sampler"
# + CAUSE = ""
# - loader = DataLoader(train_data, batch_size=options.global_batch // world, sampler=sampler)
# + loader = DataLoader(train_data, batch_size=options.global_batch // world, shuffle=True)

# %% [markdown] exercise="L6.4" part="hint"
# How many steps has an epoch, on one process and on three?

# %% [markdown] exercise="L6.4" part="hint"
# Who told the loader which part of the data is its own?

# %% [markdown] exercise="L6.4" part="hint"
# `sampler=sampler` in the place of `shuffle=True`.

# %% exercise="L6.4" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "sampler"

# %% [markdown] exercise="L6.4" part="explanation"
# Every process goes through the whole data set, so that an epoch is in truth three. Accuracy an epoch looks splendid,
# and the time to it is that of one process. The workshop's own assessment could be passed in this way.

# %% exercise="L6.4" part="wrong" expects="shared"
# the solution, but
# - loader = DataLoader(train_data, batch_size=options.global_batch // world, sampler=sampler)
# + loader = DataLoader(train_data, batch_size=options.global_batch // world, shuffle=True)

# %% exercise="L6.4" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "sampler"
# + CAUSE = ""

# %% exercise="L6.4" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "sampler"
# + CAUSE = "set_epoch"

# %% [markdown] exercise="L6.5" part="task"
# ### Exercise L6.5 · Small batches
#
# On one process with a batch of 24 the network is good. On many processes, with the same global batch, it is worse,
# and the worse the more processes there are.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.5" part="starter" expects="unequal"
# the solution, but
# - CAUSE = "batch-norm"
# + CAUSE = ""
# - self.norm = nn.GroupNorm(3, 12)
# + self.norm = nn.BatchNorm1d(12)

# %% [markdown] exercise="L6.5" part="hint"
# Which layer's output for a sample depends on other samples?

# %% [markdown] exercise="L6.5" part="hint"
# Batch norm divides by statistics over the samples that *it* sees. How many are these?

# %% [markdown] exercise="L6.5" part="hint"
# A norm that looks at one sample only does not care: `nn.GroupNorm(3, 12)`. On GPUs `nn.SyncBatchNorm` is the other
# way.

# %% exercise="L6.5" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "batch-norm"

# %% [markdown] exercise="L6.5" part="explanation"
# With 24 samples on 3 processes, each batch norm sees 8. That is another function, noisier, and its running
# statistics differ between processes as well. Sometimes the noise helps (lab 8), but it is another training.
# Frameworks do not tell you.

# %% exercise="L6.5" part="wrong" expects="unequal"
# the solution, but
# - self.norm = nn.GroupNorm(3, 12)
# + self.norm = nn.BatchNorm1d(12)

# %% exercise="L6.5" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "batch-norm"
# + CAUSE = ""

# %% exercise="L6.5" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "batch-norm"
# + CAUSE = "augmentation-seed"

# %% [markdown] exercise="L6.6" part="task"
# ### Exercise L6.6 · To be on the safe side
#
# Now and then, after a training of many hours, the saved file cannot be read.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.6" part="starter" expects="several-writers"
# the solution, but
# - CAUSE = "saved-by-all"
# + CAUSE = ""
# - options.out.mkdir(parents=True, exist_ok=True)
# - torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, options.out / "state.pt")
# - if rank == 0:
# + options.out.mkdir(parents=True, exist_ok=True)
# + torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, options.out / "state.pt")
# + if rank == 0:

# %% [markdown] exercise="L6.6" part="hint"
# How many processes write that file?

# %% [markdown] exercise="L6.6" part="hint"
# They write the same bytes to the same place at the same time. What does a reader find in the middle of it?

# %% [markdown] exercise="L6.6" part="hint"
# Save under `if rank == 0:`.

# %% exercise="L6.6" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "saved-by-all"

# %% [markdown] exercise="L6.6" part="explanation"
# Each process truncates the file and writes it anew. Mostly the last one wins with a whole file. If a process is
# killed in the middle, or two write alternately over a network, it is torn. One process writes, best under another
# name that is changed when the file is complete.

# %% exercise="L6.6" part="wrong" expects="several-writers"
# the solution, but
# - options.out.mkdir(parents=True, exist_ok=True)
# - torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, options.out / "state.pt")
# - if rank == 0:
# + options.out.mkdir(parents=True, exist_ok=True)
# + torch.save({"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}, options.out / "state.pt")
# + if rank == 0:

# %% exercise="L6.6" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "saved-by-all"
# + CAUSE = ""

# %% exercise="L6.6" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "saved-by-all"
# + CAUSE = "rank-0-collective"

# %% [markdown] exercise="L6.7" part="task"
# ### Exercise L6.7 · Enough is enough
#
# With `--good-enough` the program sometimes stands still at the end of an epoch. More often with more processes.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.7" part="starter" expects="left"
# the solution, but
# - CAUSE = "early-stop"
# + CAUSE = ""
# - dist.all_reduce(enough, op=dist.ReduceOp.MIN)

# %% [markdown] exercise="L6.7" part="hint"
# On which number does each process decide to stop?

# %% [markdown] exercise="L6.7" part="hint"
# `total / count` is the loss of a process's own samples. One process is below the limit, another is not.

# %% [markdown] exercise="L6.7" part="hint"
# Make one decision of all: `dist.all_reduce(enough, op=dist.ReduceOp.MIN)`.

# %% exercise="L6.7" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "early-stop"

# %% [markdown] exercise="L6.7" part="explanation"
# One process leaves the loop and goes to the end, the other waits for it in the next backward. The more processes,
# the more likely that their losses lie on both sides of the limit. Any decision, to stop, to lower a rate, to save
# the best, has to be made on a number that is the same everywhere.

# %% exercise="L6.7" part="wrong" expects="left"
# the solution, but
# - dist.all_reduce(enough, op=dist.ReduceOp.MIN)

# %% exercise="L6.7" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "early-stop"
# + CAUSE = ""

# %% exercise="L6.7" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "early-stop"
# + CAUSE = "uneven-batches"

# %% [markdown] exercise="L6.8" part="task"
# ### Exercise L6.8 · A layer for later
#
# The network was given a second output for a task that is still to come. On one process it trains as before.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.8" part="starter" expects="raised"
# the solution, but
# - CAUSE = "unused-parameters"
# + CAUSE = ""
# - self.last = nn.Linear(12, 3)
# + self.last = nn.Linear(12, 3)
# + self.second_task = nn.Linear(12, 5)

# %% [markdown] exercise="L6.8" part="hint"
# What does DDP do with every parameter that it was given?

# %% [markdown] exercise="L6.8" part="hint"
# It waits for each parameter's gradient. Which parameter never gets one?

# %% [markdown] exercise="L6.8" part="hint"
# Take the layer out, or say `find_unused_parameters=True` where the model is wrapped.

# %% exercise="L6.8" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "unused-parameters"

# %% [markdown] exercise="L6.8" part="explanation"
# DDP cannot know that a gradient will not come; it notices in the next forward that the last reduction was not
# finished, and says so. `find_unused_parameters=True` makes it look at the graph of each forward, which costs time.
# Best is a model whose parameters are all used.

# %% exercise="L6.8" part="wrong" expects="raised"
# the solution, but
# - self.last = nn.Linear(12, 3)
# + self.last = nn.Linear(12, 3)
# + self.second_task = nn.Linear(12, 5)

# %% exercise="L6.8" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "unused-parameters"
# + CAUSE = ""

# %% exercise="L6.8" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "unused-parameters"
# + CAUSE = "rate-on-resume"

# %% [markdown] exercise="L6.9" part="task"
# ### Exercise L6.9 · Gradients of equal length
#
# Its author read that gradients should be averaged by hand, to have control. All processes agree after each step, and
# still the result depends on their number.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.9" part="starter" expects="unequal"
# the solution, but
# - CAUSE = "clipping"
# + CAUSE = ""
# - loss.backward()
# - optimizer.zero_grad()
# - loss = nn.functional.cross_entropy(ddp(points), labels)
# + optimizer.zero_grad()
# + with ddp.no_sync():
# +     loss = nn.functional.cross_entropy(ddp(points), labels)
# +     loss.backward()
# - nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
# + nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
# + for p in ddp.parameters():
# +     dist.all_reduce(p.grad)
# +     p.grad /= world

# %% [markdown] exercise="L6.9" part="hint"
# What is clipped, and when?

# %% [markdown] exercise="L6.9" part="hint"
# The norm of a mean is smaller than the mean of norms, where the parts point in different directions.

# %% [markdown] exercise="L6.9" part="hint"
# Average first and clip afterwards; or let DDP average, as the program above does.

# %% exercise="L6.9" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "clipping"

# %% [markdown] exercise="L6.9" part="explanation"
# Each process clips its own, noisier gradient, and so clips more; the average of clipped gradients is not the clipped
# average. The processes agree because they all do the same wrong thing: only a comparison with one process finds it.

# %% exercise="L6.9" part="wrong" expects="unequal"
# the solution, but
# - loss.backward()
# - optimizer.zero_grad()
# - loss = nn.functional.cross_entropy(ddp(points), labels)
# + optimizer.zero_grad()
# + with ddp.no_sync():
# +     loss = nn.functional.cross_entropy(ddp(points), labels)
# +     loss.backward()
# - nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
# + nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
# + for p in ddp.parameters():
# +     dist.all_reduce(p.grad)
# +     p.grad /= world

# %% exercise="L6.9" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "clipping"
# + CAUSE = ""

# %% exercise="L6.9" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "clipping"
# + CAUSE = "summed-loss"

# %% [markdown] exercise="L6.10" part="task"
# ### Exercise L6.10 · Nothing is wasted
#
# Process 0 has other things to do as well, so it was given fewer samples. Not one of them is lost or doubled.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.10" part="starter" expects="mismatch"
# the solution, but
# - CAUSE = "uneven-batches"
# + CAUSE = ""
# - sampler = DistributedSampler(train_data, seed=options.seed)
# - loader = DataLoader(train_data, batch_size=options.global_batch // world, sampler=sampler)
# + order = torch.randperm(len(train_data), generator=torch.Generator().manual_seed(options.seed)).tolist()
# + first = len(order) * 5 // 12
# + part = order[:first] if rank == 0 else order[first + (rank - 1) :: world - 1]
# + loader = DataLoader(Subset(train_data, part), batch_size=options.global_batch // world, shuffle=True)
# - sampler.set_epoch(epoch)

# %% [markdown] exercise="L6.10" part="hint"
# How many batches has each process in an epoch?

# %% [markdown] exercise="L6.10" part="hint"
# What do the others do in the step that process 0 does not have?

# %% [markdown] exercise="L6.10" part="hint"
# Equally many batches on every process: a `DistributedSampler`, with its `set_epoch`.

# %% exercise="L6.10" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "uneven-batches"

# %% [markdown] exercise="L6.10" part="explanation"
# In the last steps the larger part waits for gradients of the smaller, which is in the evaluation already: the
# collectives of two different places meet. `DistributedSampler` fills up so that this cannot happen. Where parts must
# differ, `torch.distributed.algorithms.Join` lets processes that have finished answer for themselves.

# %% exercise="L6.10" part="wrong" expects="mismatch"
# the solution, but
# - sampler = DistributedSampler(train_data, seed=options.seed)
# - loader = DataLoader(train_data, batch_size=options.global_batch // world, sampler=sampler)
# + order = torch.randperm(len(train_data), generator=torch.Generator().manual_seed(options.seed)).tolist()
# + first = len(order) * 5 // 12
# + part = order[:first] if rank == 0 else order[first + (rank - 1) :: world - 1]
# + loader = DataLoader(Subset(train_data, part), batch_size=options.global_batch // world, shuffle=True)
# - sampler.set_epoch(epoch)

# %% exercise="L6.10" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "uneven-batches"
# + CAUSE = ""

# %% exercise="L6.10" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "uneven-batches"
# + CAUSE = "sampler"

# %% [markdown] exercise="L6.11" part="task"
# ### Exercise L6.11 · Reproducible noise
#
# The noise that is added to the samples was made reproducible. Since then augmentation helps less, the more processes
# there are.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.11" part="starter" expects="same-noise"
# the solution, but
# - CAUSE = "augmentation-seed"
# + CAUSE = ""
# - noise = torch.Generator().manual_seed(options.seed + 1000 * epoch + 17 * rank)
# + noise = torch.Generator().manual_seed(options.seed + 1000 * epoch)

# %% [markdown] exercise="L6.11" part="hint"
# Which random numbers should be the same on all processes, and which should not?

# %% [markdown] exercise="L6.11" part="hint"
# Weights and the order of samples: the same. What is drawn for each sample: not.

# %% [markdown] exercise="L6.11" part="hint"
# Put the rank into the seed of this generator.

# %% exercise="L6.11" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "augmentation-seed"

# %% [markdown] exercise="L6.11" part="explanation"
# All processes add the same noise to their samples, so that a global batch has only a third of the noise's variety.
# `torch.manual_seed(seed)` at the beginning of a script does the same to everything that is drawn afterwards, dropout
# included.

# %% exercise="L6.11" part="wrong" expects="same-noise"
# the solution, but
# - noise = torch.Generator().manual_seed(options.seed + 1000 * epoch + 17 * rank)
# + noise = torch.Generator().manual_seed(options.seed + 1000 * epoch)

# %% exercise="L6.11" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "augmentation-seed"
# + CAUSE = ""

# %% exercise="L6.11" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "augmentation-seed"
# + CAUSE = "batch-norm"

# %% [markdown] exercise="L6.12" part="task"
# ### Exercise L6.12 · Larger, on with it
#
# A training is resumed on more devices, with twice the global batch, and twice the rate as the rule says. It goes on
# as if the rate had not changed.
#
# Mend the program, and put the name of its fault into the first line.
#
# **Done when** the program has all the properties above, and its fault has its name.

# %% exercise="L6.12" part="starter" expects="rate"
# the solution, but
# - CAUSE = "rate-on-resume"
# + CAUSE = ""
# - for group in optimizer.param_groups:
# - group["lr"] = rate

# %% [markdown] exercise="L6.12" part="hint"
# Where does the optimizer have its learning rate from, after it was resumed?

# %% [markdown] exercise="L6.12" part="hint"
# `load_state_dict` brings the groups of the checkpoint along, and `lr` is in them.

# %% [markdown] exercise="L6.12" part="hint"
# Set the rate after the state was loaded.

# %% exercise="L6.12" part="solution"
# the file zoo.py, but
# - CAUSE = ""  # one of the names in the lab's list, for instance "sampler"
# + CAUSE = "rate-on-resume"

# %% [markdown] exercise="L6.12" part="explanation"
# The state of an optimizer is more than its momenta. Schedulers have the same trap: they too keep a base rate. Print
# the rate that is in the optimizer, not the one that you asked for.

# %% exercise="L6.12" part="wrong" expects="rate"
# the solution, but
# - for group in optimizer.param_groups:
# - group["lr"] = rate

# %% exercise="L6.12" part="wrong" expects="no-cause"
# the solution, but
# - CAUSE = "rate-on-resume"
# + CAUSE = ""

# %% exercise="L6.12" part="wrong" expects="wrong-cause"
# the solution, but
# - CAUSE = "rate-on-resume"
# + CAUSE = "saved-by-all"

# %% [markdown]
# ## What you can say now
#
# - Equal weights on all processes are not enough, and a falling loss is not enough: only one process with the same
#   batches is a reference.
# - A hang has a process that did not come, and a line at which it stands.
# - Every number is either one process's or everybody's, and a decision needs one of the latter.
#
# `quiz("L6")` draws new numbers each time.
