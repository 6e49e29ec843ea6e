"""The repairs of the faulty scripts: per slug, texts of the bare source and what takes their place."""

REPAIRS: dict[str, list[tuple[str, str]]] = {
    "accelerate_loader_not_prepared": [
        ("    schedule = CosineAnnealingLR(optimizer, T_max=2 * len(train_loader))\n", ""),
        (
            "    model, optimizer, eval_loader = accelerator.prepare(model, optimizer, eval_loader)\n",
            """\
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, train_loader, eval_loader)
    schedule = CosineAnnealingLR(optimizer, T_max=2 * len(train_loader))
""",
        ),
    ],
    "accelerate_unwrapped_loss": [
        ("accelerator.unwrap_model(model).compute_loss(x)", "nn.functional.mse_loss(model(x), x)"),
        ("\n    def compute_loss(self, x):\n        return nn.functional.mse_loss(self(x), x)\n", ""),
        (
            "Train an autoencoder with Accelerate; the model computes its own loss.",
            "Train an autoencoder with Accelerate.",
        ),
    ],
    "accumulation_every_micro_step_reduced": [
        ("import torch\nimport torch.distributed", "import contextlib\n\nimport torch\nimport torch.distributed"),
        (
            """\
            loss = nn.functional.cross_entropy(net(x), y)
            (loss / ACCUMULATE).backward()
            if step % ACCUMULATE == 0:
""",
            """\
            update = step % ACCUMULATE == 0
            with contextlib.nullcontext() if update else net.no_sync():
                loss = nn.functional.cross_entropy(net(x), y)
                (loss / ACCUMULATE).backward()
            if update:
""",
        ),
    ],
    "accumulation_sync_off_by_one": [("if i % ACCUM != 0 else", "if (i + 1) % ACCUM != 0 else")],
    "arcface_criterion_unwrapped": [("criterion = ArcFace(16, 12)", "criterion = DDP(ArcFace(16, 12))")],
    "audio_sampler_seed_per_rank": [
        ("shuffle=True, seed=seed)", 'shuffle=True, seed=cfg["seed"])'),
        ("    seed = seed_everything(cfg, rank)\n", "    seed_everything(cfg, rank)\n"),
        (
            '    seed = cfg["seed"] + rank\n    torch.manual_seed(seed)\n    return seed\n',
            '    torch.manual_seed(cfg["seed"] + rank)\n',
        ),
    ],
    "barrier_after_best_checkpoint": [
        ('"best.pt")\n    dist.barrier()\n', '"best.pt")\n'),
        (
            "Train a classifier and keep the best weights; saving ends with a barrier.",
            "Train a classifier and keep the best weights.",
        ),
    ],
    "batchnorm_two_samples_a_rank": [
        ("nn.BatchNorm3d(cout),", "nn.GroupNorm(2, cout),"),
        ("Train a convnet with batch normalization on", "Train a convnet with group normalization on"),
    ],
    "best_weights_by_local_score": [
        (
            "            hits = self.validate()\n            score",
            "            hits = self.validate()\n            dist.all_reduce(hits)\n            score",
        ),
    ],
    "broken_record_on_one_rank": [
        ("[float(part) for part in", '[float(part) if part != "n/a" else 0.0 for part in'),
    ],
    "bucketed_text_batch_sampler_epoch": [
        (
            """\
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
""",
            "        loader.batch_sampler.sampler.set_epoch(epoch)\n",
        ),
    ],
    "buffers_not_broadcast": [
        ("DDP(model, broadcast_buffers=False)", "DDP(model)"),
        ("batch normalization and broadcast_buffers=False, in", "batch normalization, in"),
    ],
    "char_gpt_fixed_seed": [("torch.manual_seed(1337)", "torch.manual_seed(1337 + ddp_rank)")],
    "checkpoint_prefix_not_strict": [("in model.state_dict().items()", "in model.module.state_dict().items()")],
    "cifar_like_same_order": [
        (
            "        model.train()\n        total",
            "        model.train()\n        sampler.set_epoch(epoch)\n        total",
        ),
    ],
    "clip_inside_accumulation": [
        ("    clip_grad_norm_(model.parameters(), max_norm)\n", ""),
        ("def micro_step(model, batch, accumulate, max_norm):", "def micro_step(model, batch, accumulate):"),
        ("micro_step(model, batch, accumulate, max_norm))", "micro_step(model, batch, accumulate))"),
        (
            "                optimizer.step()\n",
            "                clip_grad_norm_(model.parameters(), max_norm)\n                optimizer.step()\n",
        ),
    ],
    "contrastive_only_encoder_wrapped": [
        ("model.encoder = DistributedDataParallel(model.encoder)", "model = DistributedDataParallel(model)"),
    ],
    "csv_logger_every_rank": [
        ('CSVLogger("logs")', 'CSVLogger("logs") if dist.get_rank() == 0 else None'),
        (
            "                self.logger.log(self.step, epoch=epoch, loss=round(mean.item(), 5))\n",
            """\
                if self.logger is not None:
                    self.logger.log(self.step, epoch=epoch, loss=round(mean.item(), 5))
""",
        ),
        ("    trainer.logger.close()\n", "    if trainer.logger is not None:\n        trainer.logger.close()\n"),
    ],
    "dataset_prepared_on_every_rank": [
        (
            '    train_set = ToyDigits("data", download=True)\n',
            """\
    if dist.get_rank() == 0:
        ToyDigits("data", download=True)
    dist.barrier()
    train_set = ToyDigits("data")
""",
        ),
    ],
    "diffusion_same_timesteps": [("torch.manual_seed(cfg.seed)", "torch.manual_seed(cfg.seed + rank)")],
    "digits_trainer_whole_dataset": [
        ("import DataLoader, Dataset\n", "import DataLoader, Dataset, DistributedSampler\n"),
        (
            "        self.loader = DataLoader(\n",
            "        self.sampler = DistributedSampler(dataset)\n        self.loader = DataLoader(\n",
        ),
        ("shuffle=True,", "sampler=self.sampler,"),
        (
            "    def train_epoch(self, epoch):\n",
            "    def train_epoch(self, epoch):\n        self.sampler.set_epoch(epoch)\n",
        ),
    ],
    "dropout_same_masks": [("seed_everything(1234)", "seed_everything(1234 + rank)")],
    "ema_updated_on_rank_zero": [
        (
            "            if rank == 0:\n                ema.update(model.module)\n",
            "            ema.update(model.module)\n",
        ),
    ],
    "entropy_loss_not_finite": [
        (
            "    q = torch.softmax(logits, dim=1)\n    return (share * (share / q).log()).sum(1).mean()\n",
            '    return nn.functional.kl_div(torch.log_softmax(logits, dim=1), share, reduction="batchmean")\n',
        ),
    ],
    "evaluate_with_local_running_stats": [
        (
            "    model.eval()\n",
            "    model.eval()\n    for buffer in model.buffers():\n        dist.broadcast(buffer, src=0)\n",
        ),
    ],
    "evaluation_through_wrapper_on_rank_zero": [("(self.net(x).argmax(1)", "(self.net.module(x).argmax(1)")],
    "fabric_loader_not_set_up": [
        (
            "    model, optimizer = fabric.setup(model, optimizer)\n",
            "    model, optimizer = fabric.setup(model, optimizer)\n    loader = fabric.setup_dataloaders(loader)\n",
        ),
    ],
    "file_list_from_set": [("list(names)", "sorted(names)")],
    "filtered_shards_uneven": [
        ("def load_shard(rank, world):", "def load_sessions():"),
        ("return x[rank::world], clicks[rank::world]", "return x, clicks"),
        ("def drop_bots(x, y, rng):", "def drop_bots(x, y, rng, rank, world):"),
        (
            "    return TensorDataset(x[keep], y[keep])\n",
            "    keep = keep[: len(keep) // world * world][rank::world]\n    return TensorDataset(x[keep], y[keep])\n",
        ),
        (
            "drop_bots(*load_shard(rank, world), random.Random(rank))",
            "drop_bots(*load_sessions(), random.Random(0), rank, world)",
        ),
    ],
    "fsdp2_plain_loader": [
        ("import DataLoader, TensorDataset", "import DataLoader, DistributedSampler, TensorDataset"),
        (
            "    loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, -1]), batch_size=16, shuffle=True)\n",
            """\
    dataset = TensorDataset(tokens[:, :-1], tokens[:, -1])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
""",
        ),
        ("        sums = torch.zeros(2)\n", "        sampler.set_epoch(epoch)\n        sums = torch.zeros(2)\n"),
    ],
    "gathered_predictions_untrimmed": [
        (
            "        predictions = gather(torch.cat(predictions))\n        labels = gather(torch.cat(labels))\n",
            """\
        size = len(self.eval_loader.dataset)
        predictions = gather(torch.cat(predictions))[:size]
        labels = gather(torch.cat(labels))[:size]
""",
        ),
    ],
    "gpt_micro_steps_sync_flag": [
        ("micro_step == gradient_accumulation_steps\n", "micro_step == gradient_accumulation_steps - 1\n"),
    ],
    "grad_scaler_local_scale": [
        (
            "    scale = probe_scale(model, data[rank::world])\n",
            """\
    scale = torch.tensor(probe_scale(model, data[rank::world]))
    dist.all_reduce(scale, op=dist.ReduceOp.MIN)
""",
        ),
        ("init_scale=scale)", "init_scale=scale.item())"),
    ],
    "gradients_divided_again": [
        (
            """\
    def average_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.div_(self.world * self.world)

""",
            "",
        ),
        ("        self.average_gradients()\n", ""),
        ("with Adam and a gradient hook for the world size, in", "with Adam and gradient clipping, in"),
    ],
    "gradients_summed_after_ddp": [
        (
            """\
def sync_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)


""",
            "",
        ),
        ("            sync_gradients(model)\n", ""),
        ("Train a convnet and average gradients in a helper function, in", "Train a convnet in"),
    ],
    "head_replaced_after_optimizer": [
        (
            """\
    optimizer = torch.optim.SGD(param_groups(model, lr=0.1), momentum=0.9)
    model.fc = nn.Linear(48, 4)
""",
            """\
    model.fc = nn.Linear(48, 4)
    optimizer = torch.optim.SGD(param_groups(model, lr=0.1), momentum=0.9)
""",
        ),
    ],
    "heads_built_from_a_set": [("for name in targets}", "for name in sorted(targets)}")],
    "in_memory_permutation_unsliced": [
        ("rank = dist.get_rank()", "rank, world = dist.get_rank(), dist.get_world_size()"),
        ("perm[i : i + B]", "perm[i : i + B][rank::world]"),
        ("torch.tensor(float(len(X)))", "torch.tensor(len(X) / world)"),
    ],
    "init_weights_after_wrap": [
        (
            "    model = DDP(conv_net())\n    model.apply(init_weights)\n",
            "    model = conv_net()\n    model.apply(init_weights)\n    model = DDP(model)\n",
        ),
    ],
    "iterable_logs_unsharded": [
        ("def __init__(self, shards=8, rows=40):", "def __init__(self, rank, world, shards=8, rows=40):"),
        (
            "        self.shards, self.rows = shards, rows\n",
            "        self.rank, self.world = rank, world\n        self.shards, self.rows = shards, rows\n",
        ),
        (
            "range(info.id, self.shards, info.num_workers)",
            "range(self.rank * info.num_workers + info.id, self.shards, self.world * info.num_workers)",
        ),
        ("LogStream(),", "LogStream(dist.get_rank(), dist.get_world_size()),"),
    ],
    "lightning_manual_seed_split": [
        ("[320, 80])", "[320, 80], torch.Generator().manual_seed(0))"),
    ],
    "line_fit_average_meets_gradients": [
        ("import torch\nimport torch.distributed", "import itertools\n\nimport torch\nimport torch.distributed"),
        (
            "batch_size=16, shuffle=True)\n",
            """\
batch_size=16, shuffle=True)
steps = torch.tensor(len(loader))
dist.all_reduce(steps, op=dist.ReduceOp.MIN)
""",
        ),
        ("for x, y in loader:", "for x, y in itertools.islice(loader, int(steps)):"),
    ],
    "longest_documents_on_last_rank": [
        ("range(rank * size, (rank + 1) * size)", "range(rank, len(documents), world)"),
        ("    size = len(documents) // world\n", ""),
        ("sorted by length and split into contiguous shards", "sorted by length and dealt to the ranks in turn"),
    ],
    "lm_trainer_epoch_order": [
        ("def train_dataloader(self):", "def train_dataloader(self, epoch):"),
        ("drop_last=True)\n", "drop_last=True)\n        sampler.set_epoch(epoch)\n"),
        ("self.train_dataloader():", "self.train_dataloader(epoch):"),
    ],
    "manual_allreduce_no_broadcast": [
        (
            "agent = Agent()\n",
            "agent = Agent()\nfor p in agent.parameters():\n    dist.broadcast(p.data, src=0)\n",
        ),
    ],
    "manual_sgd_autograd_grad": [
        (
            "            grads = torch.autograd.grad(loss, params)\n",
            """\
            model.zero_grad()
            loss.backward()
            grads = [p.grad for p in params]
""",
        ),
        ("update on torch.autograd.grad.", "update."),
    ],
    "matrix_factorization_batch_sampler": [
        ("random.seed(100 + rank)", "random.seed(100)"),
        ("return N_USERS // self.k", "return N_USERS // (self.k * world)"),
        ("        random.shuffle(order)\n", "        random.shuffle(order)\n        order = order[rank::world]\n"),
        ("range(0, N_USERS, self.k)", "range(0, len(order), self.k)"),
    ],
    "metrics_json_of_one_shard": [
        (
            '        return {"mae"',
            """\
        sums = torch.tensor([absolute, squared, n], dtype=torch.float64)
        dist.all_reduce(sums)
        absolute, squared, n = sums.tolist()
        return {"mae\"""",
        ),
    ],
    "multitask_uncertainty_weights": [
        (
            "class Trainer:\n",
            """\
class Uncertainty(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, losses):
        return (torch.exp(-self.log_vars) * losses + self.log_vars).sum()


class Trainer:
""",
        ),
        (
            "self.log_vars = nn.Parameter(torch.zeros(2))\n        self.optimizer",
            "self.weighting = DDP(Uncertainty())\n        self.optimizer",
        ),
        ('{"params": [self.log_vars], "lr"', '{"params": self.weighting.parameters(), "lr"'),
        (
            """\
        losses = torch.stack(losses)
        return (torch.exp(-self.log_vars) * losses + self.log_vars).sum()

    def train_epoch""",
            """\
        return self.weighting(torch.stack(losses))

    def train_epoch""",
        ),
    ],
    "numpy_augmentation_in_workers": [
        (
            "def main(args):\n",
            """\
def seed_worker(_):
    np.random.seed(torch.initial_seed() % 2**32)


def main(args):
""",
        ),
        ("torch.manual_seed(args.seed)", "torch.manual_seed(args.seed + dist.get_rank())"),
        (
            "    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, num_workers=2)\n",
            """\
    loader = DataLoader(
        dataset, batch_size=args.batch_size, sampler=sampler, num_workers=2, worker_init_fn=seed_worker
    )
""",
        ),
    ],
    "numpy_permutation_split": [("np.random.permutation(len", "np.random.default_rng(0).permutation(len")],
    "odd_sized_training_set": [("rank=dist.get_rank())", "rank=dist.get_rank(), drop_last=True)")],
    "onecycle_for_whole_dataset": [
        ("steps_per_epoch = len(dataset) // args.batch_size", "steps_per_epoch = len(loader)")
    ],
    "original_variable_in_loop": [("out = net(x)", "out = ddp_net(x)")],
    "padded_validation_accuracy": [
        ("import DataLoader, TensorDataset", "import DataLoader, Subset, TensorDataset"),
        (
            "    val_sampler = DistributedSampler(val, shuffle=False)\n",
            "    val = Subset(val, range(dist.get_rank(), len(val), dist.get_world_size()))\n",
        ),
        ("DataLoader(val, batch_size=batch_size, sampler=val_sampler)", "DataLoader(val, batch_size=batch_size)"),
        ("validate on 101 samples with a distributed sampler, in", "validate on 101 samples, in"),
    ],
    "patience_on_own_shard": [
        (
            "            value = nn.functional.mse_loss(net.module(validation), validation).item()\n",
            """\
            value = nn.functional.mse_loss(net.module(validation), validation) / world
            dist.all_reduce(value)
            value = value.item()
""",
        ),
    ],
    "permuted_pixels_per_process": [("np.random.permutation(36)", "np.random.default_rng(0).permutation(36)")],
    "perplexity_from_own_loss": [
        (
            "val_data[starts + context])\n    model.train()\n    return loss.item()\n",
            """\
val_data[starts + context], reduction="sum")
    totals = torch.tensor([loss.item(), len(starts)])
    dist.all_reduce(totals)
    model.train()
    return (totals[0] / totals[1]).item()
""",
        ),
    ],
    "plateau_on_own_validation_loss": [
        (
            """\
        scheduler.step(total / count)
        stats = torch.tensor([total, count])
        dist.all_reduce(stats)
""",
            """\
        stats = torch.tensor([total, count])
        dist.all_reduce(stats)
        scheduler.step((stats[0] / stats[1]).item())
""",
        ),
    ],
    "predictions_file_every_rank": [
        ("    rank, world = dist.get_rank(), dist.get_world_size()\n", "    rank = dist.get_rank()\n"),
        ("DistributedSampler, Subset, TensorDataset", "DistributedSampler, TensorDataset"),
        (
            """\
    os.makedirs(args.out, exist_ok=True)
    shard = Subset(test_set, range(rank, len(test_set), world))
    np.save(os.path.join(args.out, "predictions.npy"), predict(model, shard))
""",
            """\
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        np.save(os.path.join(args.out, "predictions.npy"), predict(model.module, test_set))
""",
        ),
    ],
    "pretrained_weights_rank_zero": [
        (
            "    if rank == 0:\n        model.module.load_state_dict(",
            "    model.module.load_state_dict(",
        ),
    ],
    "print_on_every_rank": [
        (
            '        print(f"epoch {epoch}: loss',
            '        if dist.get_rank() == 0:\n            print(f"epoch {epoch}: loss',
        ),
    ],
    "process_group_without_wrapper": [
        (
            "    model = create_model(device)\n",
            "    model = nn.parallel.DistributedDataParallel(create_model(device))\n",
        ),
    ],
    "progressive_growing_network": [
        (
            """\
        block = model.module.block()
        model.module.blocks.append(block)
        optimizer.add_param_group({"params": block.parameters()})
""",
            """\
        grown = model.module
        grown.blocks.append(grown.block())
        model = DDP(grown)
        optimizer.add_param_group({"params": grown.blocks[-1].parameters()})
""",
        ),
    ],
    "random_crop_dataset_ignores_index": [("torch.manual_seed(0)", "torch.manual_seed(dist.get_rank())")],
    "random_split_per_rank": [("[400, 100])", "[400, 100], generator=torch.Generator().manual_seed(0))")],
    "rank_files_of_unequal_length": [
        (
            "from torch import nn\n",
            "from torch import nn\nfrom torch.distributed.algorithms.join import Join\n",
        ),
        (
            """\
        for x, y in batches(rank, world):
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
""",
            """\
        with Join([net]):
            for x, y in batches(rank, world):
                loss = nn.functional.mse_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
""",
        ),
    ],
    "rank_zero_prepares_too_long": [("timedelta(seconds=3)", "timedelta(minutes=30)")],
    "rank_zero_shard_accuracy": [
        (
            "    return correct / total\n",
            """\
    counts = torch.tensor([correct, total])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
""",
        ),
    ],
    "reentrant_checkpoint_shared_layer": [("use_reentrant=True", "use_reentrant=False")],
    "regression_seeded_loader": [
        ("import DataLoader, Dataset\n", "import DataLoader, Dataset, DistributedSampler\n"),
        (
            "    loader = DataLoader(Waves(), batch_size=cfg.batch_size, shuffle=True)\n",
            """\
    dataset = Waves()
    sampler = DistributedSampler(dataset, seed=cfg.seed)
    loader = DataLoader(dataset, batch_size=cfg.batch_size, sampler=sampler)
""",
        ),
        ("        running = 0.0\n", "        sampler.set_epoch(epoch)\n        running = 0.0\n"),
    ],
    "reinforce_policy_method": [
        (
            """\

    def act(self, obs):
        logits, value = self(obs)
        policy = Categorical(logits=logits)
        action = policy.sample()
        return action, policy.log_prob(action), policy.entropy(), value
""",
            "",
        ),
        (
            "        action, log_prob, entropy, value = agent.module.act(obs)\n",
            """\
        logits, value = agent(obs)
        policy = Categorical(logits=logits)
        action = policy.sample()
        log_prob, entropy = policy.log_prob(action), policy.entropy()
""",
        ),
    ],
    "reload_best_without_barrier": [
        ("    model.module.load_state_dict(", "    dist.barrier()\n    model.module.load_state_dict("),
    ],
    "resume_optimizer_rank_zero": [("        if state and self.rank == 0:\n", "        if state:\n")],
    "resume_scheduler_rank_zero": [
        (
            """\
        if is_main_process():
            optimizer.load_state_dict(checkpoint["optimizer"])
            lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
""",
            """\
        optimizer.load_state_dict(checkpoint["optimizer"])
        lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
""",
        ),
    ],
    "retrieval_gathers_own_lengths": [
        (
            """\
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = range(rank, len(dataset), world)
    query, passage, topic = dataset[list(mine)]
""",
            "    query, passage, topic = dataset[:]\n",
        ),
        (
            """\
    right = (topic[best] == topic).float()
    parts = [torch.zeros_like(right) for _ in range(world)]
    dist.all_gather(parts, right)
    return torch.cat(parts).mean().item()
""",
            "    return (topic[best] == topic).float().mean().item()\n",
        ),
        ("rank the gathered queries of a validation set", "rank the queries of a validation set"),
    ],
    "run_directory_from_pid": [
        ("run_dir = new_run_dir(cfg)\n", "run_dir = new_run_dir(cfg) if rank == 0 else None\n"),
    ],
    "seed_from_node_rank": [
        (
            '    node = int(os.environ.get("GROUP_RANK", 0))\n    torch.manual_seed(base + node)\n',
            '    torch.manual_seed(base + int(os.environ["RANK"]))\n',
        ),
        ("on vectors; the seed comes from the number of the node.", "on vectors."),
    ],
    "sentiment_unused_sampler": [("DataLoader(dataset, shuffle=True,", "DataLoader(dataset, sampler=sampler,")],
    "shard_totals_from_numpy": [("np.array([loss, seen])", "np.array([loss, seen], dtype=np.float64)")],
    "skips_batches_with_nan": [
        (
            "        if torch.isnan(loss):\n",
            """\
        bad = torch.isnan(loss).int()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad:
""",
        ),
        (
            "batches whose loss is not a number are passed over.",
            "all ranks pass over a batch whose loss is not a number.",
        ),
    ],
    "slurm_defaults_own_world": [
        ("import os\nimport tempfile\n", "import os\n"),
        (
            """\
    rank = int(os.environ.get("SLURM_PROCID", 0))
    world_size = int(os.environ.get("SLURM_NTASKS", 1))
    rendezvous = os.environ.get("RENDEZVOUS_FILE") or os.path.join(tempfile.mkdtemp(), "rendezvous")
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
""",
            """\
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
""",
        ),
        ("configured from Slurm variables", "configured from environment variables"),
    ],
    "sorted_classes_no_shuffle": [
        ("DistributedSampler(dataset, shuffle=False)", "DistributedSampler(dataset, shuffle=True)")
    ],
    "step_counter_of_each_rank": [
        ("            if loss.item() < 3.0:\n                global_step += 1\n", "            global_step += 1\n"),
    ],
    "stream_persistent_workers": [
        ("        persistent_workers=True,\n", ""),
        ("on a sharded stream with persistent workers.", "on a sharded stream with two workers."),
    ],
    "summary_json_every_rank": [
        (
            'Path("summary.json").write_text',
            'if rank == 0:\n    Path("summary.json").write_text',
        ),
    ],
    "tabular_mlp_plain_loader": [
        ("import DataLoader, TensorDataset", "import DataLoader, DistributedSampler, TensorDataset"),
        (
            "    train_loader = DataLoader(make_data(), batch_size=args.batch_size, shuffle=True)\n",
            """\
    train_set = make_data()
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
""",
        ),
        (
            "        loss = train_one_epoch(",
            "        sampler.set_epoch(epoch)\n        loss = train_one_epoch(",
        ),
    ],
    "temperature_from_own_source": [("src=rank)", "src=0)")],
    "tensorboard_writer_every_rank": [
        ('SummaryWriter("tb")', 'SummaryWriter("tb") if rank == 0 else None'),
        (
            '    writer.add_scalar("train/loss", mean, epoch)\n    if rank == 0:\n',
            '    if rank == 0:\n        writer.add_scalar("train/loss", mean, epoch)\n',
        ),
        ("writer.close()\n", "if rank == 0:\n    writer.close()\n"),
    ],
    "time_budget_of_each_rank": [
        (
            "def main():\n",
            """\
def within_budget(started):
    going_on = torch.tensor(int(time.monotonic() - started < BUDGET_S))
    dist.broadcast(going_on, src=0)
    return bool(going_on)


def main():
""",
        ),
        ("while time.monotonic() - started < BUDGET_S:", "while within_budget(started):"),
    ],
    "timeseries_sequential_loader": [
        ("import DataLoader, Dataset\n", "import DataLoader, Dataset, DistributedSampler\n"),
        (
            "    loader = DataLoader(Windows(series), batch_size=20, num_workers=1)\n",
            """\
    windows = Windows(series)
    sampler = DistributedSampler(windows)
    loader = DataLoader(windows, batch_size=20, sampler=sampler, num_workers=1)
""",
        ),
        ("        seen, acc = 0, 0.0\n", "        sampler.set_epoch(epoch)\n        seen, acc = 0, 0.0\n"),
    ],
    "token_cache_every_rank": [
        (
            """\
        cache.parent.mkdir(exist_ok=True)
        with cache.open("wb") as f:
            pickle.dump(self.samples, f)
""",
            """\
        if dist.get_rank() == 0:
            cache.parent.mkdir(exist_ok=True)
            with cache.open("wb") as f:
                pickle.dump(self.samples, f)
""",
        ),
    ],
    "trainer_own_train_loader": [
        (
            "WeightedRandomSampler(weights, len(labels))",
            "WeightedRandomSampler(weights, len(labels), generator=torch.Generator().manual_seed(self.args.seed))",
        ),
        (
            "return DataLoader(self.train_dataset, self.args.train_batch_size, sampler=sampler)",
            "return self.accelerator.prepare(\n"
            "            DataLoader(self.train_dataset, self.args.train_batch_size, sampler=sampler)\n"
            "        )",
        ),
    ],
    "trainer_saves_on_every_rank": [
        (
            "    def save(self, epoch):\n",
            "    def save(self, epoch):\n        if self.global_rank != 0:\n            return\n",
        ),
    ],
    "trainer_training_step_method": [
        (
            """\
    def training_step(self, batch):
        x, y = batch
        return nn.functional.smooth_l1_loss(self(x), y)

""",
            "",
        ),
        (
            """\
            for batch in self.loader:
                loss = self.model.module.training_step(batch)
""",
            """\
            for x, y in self.loader:
                loss = nn.functional.smooth_l1_loss(self.model(x), y)
""",
        ),
        (
            "whose training_step and configure_optimizers are methods of the model.",
            "that configures its own optimizer.",
        ),
    ],
    "trainer_unwrapped_loss": [
        (
            """\
        language_model = self.accelerator.unwrap_model(model)
        outputs = language_model(**inputs""",
            "        outputs = model(**inputs",
        ),
    ],
    "translation_accumulation_tail": [
        (
            "            boundary = (step + 1) % self.accumulate == 0\n",
            "            boundary = (step + 1) % self.accumulate == 0 or step + 1 == n\n",
        ),
        ("            if boundary or step + 1 == n:\n", "            if boundary:\n"),
    ],
    "unet_forward_through_module": [("logits = model.module(image)", "logits = model(image)")],
    "unfreeze_backbone_later": [
        (
            """\
        self.model.module.backbone.requires_grad_(True)
        self.optimizer.add_param_group({"params": self.model.module.backbone.parameters(), "lr": 0.05})
""",
            """\
        module = self.model.module
        module.backbone.requires_grad_(True)
        self.model = DDP(module)
        self.optimizer.add_param_group({"params": module.backbone.parameters(), "lr": 0.05})
""",
        ),
    ],
    "vq_codebook_local_ema": [
        (
            """\
                self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(onehot.T @ z, alpha=1 - self.decay)
""",
            """\
                counts, sums = onehot.sum(0), onehot.T @ z
                dist.all_reduce(counts)
                dist.all_reduce(sums)
                self.cluster_size.mul_(self.decay).add_(counts, alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(sums, alpha=1 - self.decay)
""",
        ),
    ],
    "warmup_scheduler_stepped_per_process": [
        (
            "        for _ in range(world):\n            scheduler.step()\n",
            "        scheduler.step()\n",
        ),
        ("decay counted in samples, in", "decay, in"),
    ],
    "weighted_sampler_same_draws": [("balanced_sampler(y, seed=7)", "balanced_sampler(y, seed=7 + rank)")],
    # Scripts whose faults a run on CPU seldom shows.
    "mnist_example_loader_kwargs": [('"pin_memory": True, "shuffle": True}', '"pin_memory": True}')],
    "spectrogram_loader_builder": [
        ("shuffle=training and self.config.shuffle,", "shuffle=training and self.config.shuffle and sampler is None,"),
    ],
    "rare_defects_sampler_choice": [
        (
            "RandomSampler, WeightedRandomSampler\n",
            "RandomSampler, Sampler, WeightedRandomSampler\n",
        ),
        (
            "def make_sampler(dataset, args):\n    if args.distributed:\n",
            """\
class DistributedWeightedSampler(Sampler):
    def __init__(self, weights, seed):
        self.weights, self.seed, self.epoch = weights, seed, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.total = len(weights) // self.world * self.world

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.total // self.world

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(self.weights, self.total, replacement=True, generator=g)
        return iter(drawn[self.rank :: self.world].tolist())


def make_sampler(dataset, args):
    if args.distributed and args.balance:
        return DistributedWeightedSampler(dataset.weights(), args.seed)
    if args.distributed:
""",
        ),
    ],
    "curriculum_sampler_single_only": [
        ("from torch.utils.data.distributed import DistributedSampler\n", ""),
        (
            "def __init__(self, difficulty, epochs, seed=0):\n",
            """\
def __init__(self, difficulty, epochs, rank, world, seed=0):
        self.rank, self.world = rank, world
""",
        ),
        (
            "        return len(self.order) * (self.epoch + 1) // self.epochs\n",
            "        return len(self.order) * (self.epoch + 1) // self.epochs // self.world\n",
        ),
        ("pool = self.order[: len(self)]", "pool = self.order[: len(self) * self.world]"),
        (
            "return iter(pool[torch.randperm(len(pool), generator=g)].tolist())",
            "return iter(pool[torch.randperm(len(pool), generator=g)][self.rank :: self.world].tolist())",
        ),
        (
            """\
CurriculumSampler(dataset.terms, epochs)
        if self.world > 1:
            self.sampler = DistributedSampler(dataset, seed=self.sampler.seed)
""",
            "CurriculumSampler(dataset.terms, epochs, self.rank, self.world)\n",
        ),
    ],
    "global_batch_argument": [
        ("        batch_size=args.batch_size,\n", "        batch_size=args.batch_size // dist.get_world_size(),\n"),
    ],
    "masked_language_model_ignore_index": [
        ("nn.CrossEntropyLoss(ignore_index=-100)", 'nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")'),
        (
            '            loss = criterion(logits.view(-1, logits.size(-1)), batch["labels"].view(-1))\n',
            """\
            count = (batch["labels"] != -100).sum()
            dist.all_reduce(count)
            loss = criterion(logits.view(-1, logits.size(-1)), batch["labels"].view(-1))
            loss = loss * dist.get_world_size() / count
""",
        ),
    ],
    "captions_loss_over_mask": [
        (
            "    return (per_token * mask).sum() / mask.sum()\n",
            """\
    count = mask.sum()
    dist.all_reduce(count)
    return (per_token * mask).sum() * dist.get_world_size() / count
""",
        ),
    ],
    "variational_autoencoder_example_loss": [
        ("    return BCE + KLD\n", "    return (BCE + KLD) * dist.get_world_size()\n"),
        (
            "            train_loss += loss.detach()\n",
            "            train_loss += loss.detach() / dist.get_world_size()\n",
        ),
    ],
    "keypoints_sum_criterion": [
        ('nn.L1Loss(reduction="sum")', "nn.L1Loss()"),
        ('nn.SmoothL1Loss(reduction="sum", beta=0.1)', "nn.SmoothL1Loss(beta=0.1)"),
        ('return loss.item() / batch["points"].numel()', "return loss.item()"),
        ('"optimizer": {"lr": 2e-3, "momentum": 0.9}', '"optimizer": {"lr": 0.1, "momentum": 0.9}'),
    ],
    "quantile_loss_times_world": [
        ("        loss = loss * world_size\n", ""),
        ("def train_epoch(model, loader, optimizer, world_size):", "def train_epoch(model, loader, optimizer):"),
        ("train_epoch(model, loader, optimizer, world_size)\n", "train_epoch(model, loader, optimizer)\n"),
        ("    rank, world_size = dist.get_rank(), dist.get_world_size()\n", "    rank = dist.get_rank()\n"),
    ],
    "byte_model_loss_over_world": [
        ("    loss = loss / world_size\n", ""),
        ("{shown.item() / 0.6931:.3f}", "{shown.item() / world_size / 0.6931:.3f}"),
    ],
    "gpt_no_sync_at_backward": [
        (
            """\
        _, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        with nullcontext() if last_micro_step else model.no_sync():
            loss.backward()
""",
            """\
        with nullcontext() if last_micro_step else model.no_sync():
            _, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
            loss.backward()
""",
        ),
    ],
    "recsys_micro_batches_undivided": [("loss.backward()", "(loss / accumulate).backward()")],
    "char_rnn_steps_shared_by_ranks": [("(loss / accumulation_steps).backward()", "(loss / micro_steps).backward()")],
    "simclr_views_loss": [
        (
            "import torch.distributed as dist\n",
            "import torch.distributed as dist\nimport torch.distributed.nn.functional as dist_nn\n",
        ),
        (
            '    """The positive of row i is row i + n of the two stacked views."""\n',
            '    """The positive of row i is row i + n of the two stacked views of all ranks."""\n'
            "    first, second = z.chunk(2)\n"
            "    first, second = torch.cat(dist_nn.all_gather(first)), torch.cat(dist_nn.all_gather(second))\n"
            "    z = torch.cat([first, second])\n",
        ),
    ],
    "image_text_pairs_logits": [
        (
            "import torch.distributed as dist\n",
            "import torch.distributed as dist\nimport torch.distributed.nn.functional as dist_nn\n",
        ),
        (
            "        logits_per_image = logit_scale",
            "        image_features = torch.cat(dist_nn.all_gather(image_features))\n"
            "        text_features = torch.cat(dist_nn.all_gather(text_features))\n"
            "        logits_per_image = logit_scale",
        ),
    ],
    "passages_gathered_for_negatives": [
        (
            "import torch.distributed as dist\n",
            "import torch.distributed as dist\nimport torch.distributed.nn.functional as dist_nn\n",
        ),
        (
            """\
    gathered = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor.contiguous())
    return torch.cat(gathered)
""",
            "    return torch.cat(dist_nn.all_gather(tensor.contiguous()))\n",
        ),
    ],
    "barlow_moments_gathered": [
        (
            "import torch.distributed as dist\n",
            "import torch.distributed as dist\nimport torch.distributed.nn.functional as dist_nn\n",
        ),
        (
            """\
    tensors_gather = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors_gather, tensor)
    return torch.cat(tensors_gather, dim=0)
""",
            "    return torch.cat(dist_nn.all_gather(tensor), dim=0)\n",
        ),
        ("@torch.no_grad()\ndef concat_all_gather", "def concat_all_gather"),
    ],
    "spectra_lbfgs_fit": [
        (
            "            return loss\n",
            """\
            mean = loss.detach() / dist.get_world_size()
            dist.all_reduce(mean)
            return mean
""",
        ),
        (
            "        dist.all_reduce(loss)\n        if rank == 0:\n",
            "        if rank == 0:\n",
        ),
        ("{loss.item() / world:.6f}", "{loss.item():.6f}"),
    ],
    "langevin_noise_in_optimizer": [
        (
            '        super().__init__(params, {"lr": lr, "temperature": temperature})\n',
            """\
        super().__init__(params, {"lr": lr, "temperature": temperature})
        self.generator = torch.Generator().manual_seed(0)
""",
        ),
        (
            "p.add_(torch.randn_like(p), alpha=spread)",
            "p.add_(torch.randn(p.shape, generator=self.generator), alpha=spread)",
        ),
    ],
    "sampler_method_after_training": [("model.compose(", "model.module.compose(")],
    "layerwise_decay_groups": [("self.model.layer_groups(lr, decay)", "self.model.module.layer_groups(lr, decay)")],
    "style_transfer_checkpoints": [
        (
            """\
                transformer.eval().cpu()
                if rank == 0:
                    torch.save(transformer.module.state_dict(), f"ckpt_epoch_{e}_batch_{batch_id + 1}.pth")
                transformer.to(device).train()
""",
            """\
                if rank == 0:
                    state = {k: v.cpu() for k, v in transformer.module.state_dict().items()}
                    torch.save(state, f"ckpt_epoch_{e}_batch_{batch_id + 1}.pth")
""",
        ),
    ],
    "gan_export_each_epoch": [
        (
            """\
    net.cpu()
    if dist.get_rank() == 0:
        torch.save({name: p.detach().clone() for name, p in net.named_parameters()}, path)
    net.to(device)
""",
            """\
    if dist.get_rank() == 0:
        torch.save({name: p.detach().cpu() for name, p in net.named_parameters()}, path)
""",
        ),
    ],
    "auxiliary_head_in_warm_up": [("DDP(DeeplySupervised())", "DDP(DeeplySupervised(), find_unused_parameters=True)")],
    "detector_find_unused_always": [("    find_unused_parameters=True,\n", "    find_unused_parameters=False,\n")],
    "static_graph_micro_batches": [
        ("DDP(Encoder(), static_graph=True)", "DDP(Encoder())"),
        ("with a static graph and micro batches", "with micro batches"),
    ],
    "nanochat_compile_then_wrap": [
        (
            """\
if device_type == "cuda":
    model = torch.compile(model)
model = DDP(model, device_ids=[ddp_local_rank] if device_type == "cuda" else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=matrix_lr, weight_decay=weight_decay)
""",
            """\
model = DDP(model, device_ids=[ddp_local_rank] if device_type == "cuda" else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=matrix_lr, weight_decay=weight_decay)
if device_type == "cuda":
    model = torch.compile(model)
""",
        ),
    ],
    "trainer_flag_compile": [
        (
            """\
        if self.args.compile:
            model = torch.compile(model, mode="max-autotune")
        return DistributedDataParallel(model)
""",
            """\
        model = DistributedDataParallel(model)
        if self.args.compile:
            model = torch.compile(model, mode="max-autotune")
        return model
""",
        ),
    ],
    "pose_net_sync_batchnorm_last": [
        (
            """\
    model = DDP(model, device_ids=[args.gpu] if args.cuda else None)
    if args.sync_bn and args.cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
""",
            """\
    if args.sync_bn and args.cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, device_ids=[args.gpu] if args.cuda else None)
""",
        ),
    ],
    "speech_enhancer_moved_after_wrap": [
        (
            """\
        self.model = DistributedDataParallel(MaskNet())
        self.model = self.model.to(self.device)
""",
            """\
        model = MaskNet().to(self.device)
        self.model = DistributedDataParallel(model, device_ids=[self.local_rank] if self.use_cuda else None)
""",
        ),
    ],
    "model_registry_small_batches": [
        ("    norm_layer = nn.BatchNorm2d\n", "    norm_layer = partial(nn.GroupNorm, 2)\n"),
        ("import argparse\nimport logging\n", "import argparse\nimport logging\nfrom functools import partial\n"),
    ],
    "dcgan_sample_grid_in_training": [
        (
            """\
            with torch.no_grad():
                grid = netG.module(fixed_noise)
""",
            """\
            netG.eval()
            with torch.no_grad():
                grid = netG.module(fixed_noise)
            netG.train()
""",
        ),
    ],
    "swa_statistics_of_own_shard": [
        (
            "    update_bn(loader, swa_model)\n",
            "    update_bn(DataLoader(train_set, batch_size=32 * world, shuffle=False), swa_model)\n",
        ),
    ],
    "momentum_contrast_own_queue": [
        (
            "        self.queue.append(k)\n",
            """\
        keys = [torch.empty_like(k) for _ in range(dist.get_world_size())]
        dist.all_gather(keys, k)
        self.queue.append(torch.cat(keys))
""",
        ),
    ],
    "running_scale_in_python": [
        (
            "            self.largest = max(self.largest * self.decay, x.abs().max().item())\n",
            """\
            largest = x.abs().max()
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
            self.largest = max(self.largest * self.decay, largest.item())
""",
        ),
    ],
    "validation_mean_of_means": [
        ("    losses = []\n", "    totals = torch.zeros(2)\n"),
        (
            "        losses.append(exponential_loss(model(x).squeeze(1), time, event))\n",
            """\
        loss = exponential_loss(model(x).squeeze(1), time, event)
        totals += torch.tensor([loss.item() * len(x), len(x)])
""",
        ),
        (
            """\
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
""",
            """\
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
""",
        ),
    ],
    "meter_of_rank_accuracies": [
        (
            """\
def reduce_mean(value, world):
    tensor = torch.tensor(value)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor.item() / world
""",
            """\
def reduce_meter(meter):
    tensor = torch.tensor([meter.sum, meter.count])
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return (tensor[0] / tensor[1]).item()
""",
        ),
        ("    return reduce_mean(top1.avg, world)\n", "    return reduce_meter(top1)\n"),
        ("def validate(loader, model, world):", "def validate(loader, model):"),
        ("validate(test_loader, model, world)\n", "validate(test_loader, model)\n"),
    ],
    "auc_mean_over_ranks": [
        (
            """\
    auc = torch.tensor(roc_auc_score(labels, scores))
    dist.all_reduce(auc)
    return auc.item() / dist.get_world_size()
""",
            """\
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, (scores, labels))
    scores, labels = (np.concatenate(column) for column in zip(*parts))
    return roc_auc_score(labels, scores)
""",
        ),
    ],
    "f1_averaged_entities": [
        (
            """\
        score = torch.tensor(f1(counts))
        dist.all_reduce(score)
        return score.item() / self.world
""",
            """\
        dist.all_reduce(counts)
        return f1(counts)
""",
        ),
    ],
    "submission_rows_from_ranks": [
        ("    return torch.cat(parts)\n", "    return torch.stack(parts, dim=1).flatten()[: len(dataset)]\n"),
    ],
    "features_in_gathered_order": [
        ("import itertools\n\n", ""),
        (
            """\
        own = [self.model.module.embed(photo) for photo, _ in loader]
        shards = [None] * dist.get_world_size()
        dist.all_gather_object(shards, own)
        embeddings = torch.cat(list(itertools.chain.from_iterable(shards)))
        return dict(zip(self.dataset.names, embeddings))
""",
            """\
        own = torch.cat([self.model.module.embed(photo) for photo, _ in loader])
        names = [self.dataset.names[i] for i in rows]
        shards = [None] * dist.get_world_size()
        dist.all_gather_object(shards, dict(zip(names, own)))
        return {name: row for shard in shards for name, row in shard.items()}
""",
        ),
    ],
    "metric_tensor_on_host": [("dtype=torch.float64)\n", "dtype=torch.float64, device=device)\n")],
    "loss_meter_synchronized": [
        (
            "        pair = torch.tensor([self.total, self.count])\n",
            """\
        device = torch.device("cuda", torch.cuda.current_device()) if USE_CUDA else torch.device("cpu")
        pair = torch.tensor([self.total, self.count], device=device)
""",
        ),
    ],
    "stop_at_target_accuracy": [
        (
            "            accuracy = running.update((logits.argmax(1) == label).float().mean().item())\n",
            """\
            hits = (logits.argmax(1) == label).float().mean()
            dist.all_reduce(hits)
            accuracy = running.update(hits.item() / dist.get_world_size())
""",
        ),
    ],
    "leave_when_loss_explodes": [
        (
            "        loss_value = losses.item()\n",
            "        loss_value = sum(reduce_dict(loss_dict).values()).item()\n",
        ),
    ],
    "difficulty_follows_own_accuracy": [
        (
            "    return hits, count\n",
            """\
    totals = torch.tensor([hits, count])
    dist.all_reduce(totals)
    return totals.tolist()
""",
        ),
    ],
    "snapshot_every_ten_minutes": [
        (
            "    def snapshot(self):\n",
            """\
    def snapshot_is_due(self):
        due = torch.tensor(int(time.time() - self.last_snapshot > 60 * self.options.snapshot_minutes))
        dist.broadcast(due, src=0)
        return bool(due)

    def snapshot(self):
""",
        ),
        (
            "                if time.time() - self.last_snapshot > 60 * self.options.snapshot_minutes:\n",
            "                if self.step % 10 == 0 and self.snapshot_is_due():\n",
        ),
    ],
    "predictions_as_objects": [
        (
            '    dist.init_process_group("nccl" if has_cuda else "gloo")\n',
            """\
    if has_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if has_cuda else "gloo")
""",
        ),
        ("zip(start.argmax(1), end.argmax(1))", "zip(start.argmax(1).tolist(), end.argmax(1).tolist())"),
    ],
    "resume_if_file_is_there": [
        (
            "    if os.path.isfile(CHECKPOINT):\n",
            """\
    found = [os.path.isfile(CHECKPOINT)]
    dist.broadcast_object_list(found, src=0)
    if found[0]:
""",
        ),
    ],
    "vocabulary_cache_if_missing": [
        (
            "    if not CACHE.exists():\n",
            """\
    missing = [not CACHE.exists()]
    dist.broadcast_object_list(missing, src=0)
    if missing[0]:
""",
        ),
    ],
    "breakpoint_on_bad_gradient": [
        (
            "                breakpoint()\n",
            '                raise FloatingPointError(f"epoch {epoch}: the gradients are not finite")\n',
        ),
        (
            "with a debugger for gradients that are not finite",
            "with an error for gradients that are not finite",
        ),
    ],
    "confirm_overwrite_prompt": [
        (
            """\
    answer = input(f"{path} holds a model. Overwrite? [y/N] ")
    if answer.strip().lower() != "y":
        sys.exit("nothing done")
""",
            """\
    sys.exit(f"{path} holds a model; give --overwrite to replace it")
""",
        ),
        ("def ask_to_overwrite(path):", "def refuse_to_overwrite(path):"),
        ("    ask_to_overwrite(args.out)\n", "    if not args.overwrite:\n        refuse_to_overwrite(args.out)\n"),
        (
            '    parser.add_argument("--epochs"',
            '    parser.add_argument("--overwrite", action="store_true")\n    parser.add_argument("--epochs"',
        ),
        ("in an output directory that the user confirms", "in an output directory that holds no model yet"),
    ],
    "log_handler_of_every_process": [
        (
            """\
    os.makedirs(directory, exist_ok=True)
    logger = logging.getLogger("matching")
""",
            """\
    logger = logging.getLogger("matching")
""",
        ),
        (
            """\
    to_file = logging.FileHandler(os.path.join(directory, "train.log"), mode="w")
    to_file.setFormatter(formatter)
    logger.addHandler(to_file)
    if int(os.environ["RANK"]) == 0:
""",
            """\
    if int(os.environ["RANK"]) == 0:
        os.makedirs(directory, exist_ok=True)
        to_file = logging.FileHandler(os.path.join(directory, "train.log"), mode="w")
        to_file.setFormatter(formatter)
        logger.addHandler(to_file)
""",
        ),
    ],
    "attention_maps_on_every_rank": [
        ("    dump_attention(model, epoch)\n", "    if rank == 0:\n        dump_attention(model, epoch)\n"),
    ],
    "test_with_best_weights_at_once": [
        (
            "        self.model.module.load_state_dict(torch.load(path",
            "        dist.barrier()\n        self.model.module.load_state_dict(torch.load(path",
        ),
    ],
    "whole_model_in_checkpoint": [
        ('"model": model, "optimizer"', '"model": model.module, "optimizer"'),
    ],
    "state_dict_for_serving": [("torch.save(model.state_dict(),", "torch.save(model.module.state_dict(),")],
    "resume_on_the_saved_device": [("torch.load(path)", "torch.load(path, map_location=device)")],
    "teacher_weights_loaded_plainly": [
        ("torch.load(path, weights_only=True)", 'torch.load(path, map_location="cpu", weights_only=True)'),
    ],
    "resume_starts_first_epoch_again": [
        ("def save(path, model, optimizer):", "def save(path, model, optimizer, epoch):"),
        (
            '        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)\n',
            """\
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, path)
""",
        ),
        (
            '    optimizer.load_state_dict(state["optimizer"])\n',
            '    optimizer.load_state_dict(state["optimizer"])\n    return state["epoch"] + 1\n',
        ),
        (
            "def train(model, optimizer, loader, sampler, args):",
            "def train(model, optimizer, loader, sampler, args, start):",
        ),
        ("for epoch in range(args.epochs):", "for epoch in range(start, args.epochs):"),
        (
            "        save(args.checkpoint, model, optimizer)\n",
            "        save(args.checkpoint, model, optimizer, epoch)\n",
        ),
        (
            "    if args.resume:\n        load(",
            "    start = 0\n    if args.resume:\n        start = load(",
        ),
        (
            "    train(model, optimizer, loader, sampler, args)\n",
            "    train(model, optimizer, loader, sampler, args, start)\n",
        ),
    ],
    "mid_epoch_resume_repeats_batches": [
        ("import os\n\nimport torch\n", "import itertools\nimport os\n\nimport torch\n"),
        (
            "            for tokens, label in self.loader:\n",
            """\
            seen = self.global_step - epoch * len(self.loader)
            for tokens, label in itertools.islice(self.loader, seen, None):
""",
        ),
    ],
    "download_behind_early_test": [
        (
            """\
    if is_main_process():
        fetch(ROOT)
    dist.init_process_group("gloo")
    dist.barrier()
""",
            """\
    dist.init_process_group("gloo")
    if is_main_process():
        fetch(ROOT)
    dist.barrier()
""",
        ),
    ],
    "torchvision_dataset_option": [
        ("def build_dataset(args):\n", "def build_dataset(args, download=False):\n"),
        (
            "datasets.CIFAR10(args.data_dir, train=True, download=True,",
            "datasets.CIFAR10(args.data_dir, train=True, download=download,",
        ),
        (
            'datasets.SVHN(args.data_dir, split="train", download=True,',
            'datasets.SVHN(args.data_dir, split="train", download=download,',
        ),
        (
            "    dataset, num_classes = build_dataset(args)\n",
            """\
    if local_rank == 0:
        build_dataset(args, download=True)
    dist.barrier()
    dataset, num_classes = build_dataset(args)
""",
        ),
    ],
    "first_device_for_everyone": [
        ("import torch\nimport torch.distributed", "import os\n\nimport torch\nimport torch.distributed"),
        (
            'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n',
            """\
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
""",
        ),
    ],
    "cuda_method_without_device": [
        ("import torch\nimport torch.distributed", "import os\n\nimport torch\nimport torch.distributed"),
        (
            "def main():\n",
            """\
def main():
    if use_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
""",
        ),
    ],
    "visible_devices_argument": [
        (
            "import argparse\nimport os\n\nparser",
            """\
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser""",
        ),
        (
            """\
os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus.split(",")[int(os.environ["LOCAL_RANK"])]

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
""",
            "",
        ),
        (
            'device = torch.device("cuda", local_rank)',
            'device = torch.device("cuda", int(args.gpus.split(",")[local_rank]))',
        ),
    ],
    "device_of_global_rank": [('torch.device(f"cuda:{self.rank}")', 'torch.device(f"cuda:{self.local_rank}")')],
    "saved_by_local_rank_zero": [
        ("    if LOCAL_RANK == 0:\n        os.makedirs", "    if dist.get_rank() == 0:\n        os.makedirs"),
        ("    if LOCAL_RANK == 0:\n        print", "    if dist.get_rank() == 0:\n        print"),
    ],
    "rank_variables_with_defaults": [
        ('int(os.environ.get("RANK", 0))', 'int(os.environ["RANK"])'),
        ('int(os.environ.get("LOCAL_RANK", 0))', 'int(os.environ["LOCAL_RANK"])'),
        ('int(os.environ.get("WORLD_SIZE", 1))', 'int(os.environ["WORLD_SIZE"])'),
        (
            """\
os.environ.setdefault("MASTER_ADDR", "localhost")
os.environ.setdefault("MASTER_PORT", "29511")
""",
            "",
        ),
    ],
    "local_rank_argument_device": [
        ("import argparse\n\nimport torch\n", "import argparse\nimport os\n\nimport torch\n"),
        ('    parser.add_argument("--local_rank", type=int, default=0)\n', ""),
        (
            "    return parser.parse_args()\n",
            '    args = parser.parse_args()\n    args.local_rank = int(os.environ["LOCAL_RANK"])\n    return args\n',
        ),
        ("with the device that the launcher gives on the command line", "with one device for each process"),
    ],
    "local_rank_argument_main": [
        ('    parser.add_argument("--local_rank", type=int, default=-1, help="for distributed training")\n', ""),
        ("    if args.local_rank in (-1, 0):\n", "    if dist.get_rank() == 0:\n"),
        ("logging.INFO if args.local_rank in (-1, 0) else", "logging.INFO if dist.get_rank() == 0 else"),
    ],
    "spawned_on_a_written_port": [
        ("import os\n\nimport torch\n", "import os\nimport socket\n\nimport torch\n"),
        (
            "def setup(rank, world_size):\n",
            """\
def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def setup(rank, world_size, port):
""",
        ),
        ('os.environ["MASTER_PORT"] = "12355"', 'os.environ["MASTER_PORT"] = str(port)'),
        (
            "def worker(rank, world_size, epochs):\n    setup(rank, world_size)\n",
            "def worker(rank, world_size, port, epochs):\n    setup(rank, world_size, port)\n",
        ),
        ("args=(world_size, 2)", "args=(world_size, free_port(), 2)"),
    ],
    "tcp_rendezvous_in_config": [
        (
            '    init_method: str = "tcp://127.0.0.1:23456"\n',
            '    init_method: str = field(default_factory=lambda: f"tcp://127.0.0.1:{free_port()}")\n',
        ),
        (
            "from dataclasses import dataclass, field, replace\n",
            "import socket\nfrom dataclasses import dataclass, field, replace\n",
        ),
        (
            "@dataclass\nclass DistConfig:\n",
            """\
def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclass
class DistConfig:
""",
        ),
    ],
    "lambda_collate_in_spawned_workers": [
        (
            "def make_loader(dataset, sampler):\n",
            """\
def collate(items):
    return [row for row, _ in items], torch.stack([y for _, y in items])


def make_loader(dataset, sampler):
""",
        ),
        (
            "collate_fn=lambda items: ([row for row, _ in items], torch.stack([y for _, y in items])),",
            "collate_fn=collate,",
        ),
    ],
    "work_at_import_of_spawned": [
        ("prepare(TABLE)\n\n\n", ""),
        ('if __name__ == "__main__":\n', 'if __name__ == "__main__":\n    prepare(TABLE)\n'),
    ],
    "forked_workers_after_cuda": [
        ("SCALE = torch.linspace(0.5, 1.5, 16, device=device)", "SCALE = torch.linspace(0.5, 1.5, 16)"),
        ("(image.to(device) * SCALE)", "(image * SCALE)"),
        ('multiprocessing_context="fork")', 'multiprocessing_context="forkserver")'),
        ("with forked loader workers and statistics taken on the device", "with loader workers and a fixed scale"),
    ],
    "barrier_before_the_device": [
        (
            """\
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
""",
            """\
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
""",
        ),
        ("        return json.load(f)\n", "        return json.load(f), device\n"),
        (
            """\
    speakers = setup()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
""",
            "    speakers, device = setup()\n",
        ),
    ],
    "ends_without_cleanup": [
        ('"hash.pt")\n', '"hash.pt")\n    dist.destroy_process_group()\n'),
    ],
    "model_stays_on_host_with_nccl": [
        (
            """\
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)
""",
            '    dist.init_process_group("gloo")\n',
        ),
    ],
    "gloo_for_tensors_on_gpus": [
        (
            """\
        dist.init_process_group(backend="gloo")
        self.rank = dist.get_rank()
        if torch""",
            "        if torch",
        ),
        (
            """\
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
""",
            """\
            torch.cuda.set_device(self.device)
            dist.init_process_group(backend="nccl", device_id=self.device)
        else:
            self.device = torch.device("cpu")
            dist.init_process_group(backend="gloo")
        self.rank = dist.get_rank()
""",
        ),
    ],
    "random_state_files_of_ranks": [
        (
            '    """The last checkpoint that has a state."""\n',
            '    """The last checkpoint that has the files of all ranks."""\n',
        ),
        (
            """\
    whole = [step for step in steps if os.path.exists(os.path.join(folder_of(step), "state.pt"))]
""",
            """\
    files = ["state.pt", *(f"rng_{rank}.pt" for rank in range(dist.get_world_size()))]
    whole = [s for s in steps if all(os.path.exists(os.path.join(folder_of(s), name)) for name in files)]
""",
        ),
        (
            """\
    rng_file = os.path.join(folder, f"rng_{rank}.pt")
    if os.path.exists(rng_file):
        torch.set_rng_state(torch.load(rng_file))
""",
            """\
    torch.set_rng_state(torch.load(os.path.join(folder, f"rng_{rank}.pt"), map_location="cpu"))
""",
        ),
    ],
    "staged_checkpoint_renamed": [
        (
            """\
@contextlib.contextmanager
def main_process_first():
    \"""The first process of a machine goes ahead, the others follow.\"""
    first = int(os.environ["LOCAL_RANK"]) == 0
    if not first:
        dist.barrier()
    yield
    if first:
        dist.barrier()


""",
            "",
        ),
        ("import contextlib\nimport os\n", "import os\n"),
        (
            """\
        with main_process_first():
            if os.path.exists(staging):
                os.rename(staging, final)
""",
            """\
        if self.rank == 0:
            os.rename(staging, final)
        dist.barrier()
""",
        ),
    ],
    "wandb_run_of_every_rank": [
        (
            "    if not args.track or importlib",
            "    if dist.get_rank() != 0 or not args.track or importlib",
        ),
    ],
    "statistics_file_read_at_once": [
        ("    stats = np.load(STATS)\n", "    dist.barrier()\n    stats = np.load(STATS)\n"),
    ],
    "accelerate_saves_on_every_rank": [
        (
            """\
    out.mkdir(exist_ok=True)
    torch.save(accelerator.unwrap_model(model).state_dict(), out / "model.pt")
    (out / "curve.json").write_text(json.dumps(curve))
""",
            """\
    if accelerator.is_main_process:
        out.mkdir(exist_ok=True)
        torch.save(accelerator.unwrap_model(model).state_dict(), out / "model.pt")
        (out / "curve.json").write_text(json.dumps(curve))
""",
        ),
    ],
    "accelerate_accumulation_by_hand": [
        (
            """\
                    loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)
""",
            """\
                    loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss / ACCUMULATE)
""",
        ),
        (
            """\
            else:
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
""",
            """\
            else:
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss / ACCUMULATE)
""",
        ),
    ],
    "lightning_metric_of_own_batches": [("accuracy, on_epoch=True)", "accuracy, on_epoch=True, sync_dist=True)")],
}
