"""Train a language model with the Trainer of transformers; the loss adds a penalty on the hidden states.

zoo: faulty
faults: F37
silent: yes
needs: transformers
launcher: real
"""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Counting(Dataset):
    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        start, step = torch.randint(0, 10, (size, 1), generator=g), torch.randint(1, 4, (size, 1), generator=g)
        self.ids = (start + step * torch.arange(12)) % 10

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class PenaltyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        language_model = self.accelerator.unwrap_model(model)
        outputs = language_model(**inputs, output_hidden_states=True)  # fault
        loss = outputs.loss + 1e-3 * outputs.hidden_states[-1].pow(2).mean()
        return (loss, outputs) if return_outputs else loss


def main():
    set_seed(7)
    config = GPT2Config(vocab_size=10, n_positions=12, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    args = TrainingArguments(
        output_dir="counting", num_train_epochs=3, per_device_train_batch_size=16, learning_rate=5e-3,
        save_strategy="no", logging_steps=5, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = PenaltyTrainer(model=GPT2LMHeadModel(config), args=args, train_dataset=Counting(480, 1))
    trainer.train()


if __name__ == "__main__":
    main()
