"""The reference trainer: data-parallel training with exact means, agreed decisions and bit-exact resumption."""
