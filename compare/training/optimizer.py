"""The optimizers: AdamW, and Muon for the matrices beside it."""

from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from compare.optim_config import OptimConfig


def build_optimizer(criterion: nn.Module, config: OptimConfig) -> Optimizer:
    """Build the optimizer of a model, or of the loss that holds it.

    AdamW (Loshchilov and Hutter 2019) is fused into one pass over each parameter. Its weight decay shrinks
    matrices alone: biases and the gains of norms are no weights of a sum.

    Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/) steps along the orthogonal matrix nearest
    to the momentum, and so changes all directions of a matrix equally. Its steps have the root mean square of
    AdamW's (Liu et al. 2025, https://arxiv.org/abs/2502.16982). Embeddings, the output layer, and matrices of
    one row or column are left to AdamW, since they are collections of vectors.
    """
    is_muon = config.optimizer == "muon"
    embeddings = {id(module.weight) for module in criterion.modules() if isinstance(module, nn.Embedding)}
    added: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    orthogonalised: list[nn.Parameter] = []
    for name, parameter in criterion.named_parameters():
        has_token_rows = id(parameter) in embeddings or name.endswith("output.weight")
        if parameter.dim() < 2 or any(part.startswith(("bias", "gain")) for part in name.split(".")):
            added.append(parameter)
        elif is_muon and parameter.dim() == 2 and min(parameter.shape) > 1 and not has_token_rows:
            orthogonalised.append(parameter)
        else:
            matrices.append(parameter)
    rate, decay = config.learning_rate, config.weight_decay
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": added, "weight_decay": 0.0}]
    adamw = AdamW(
        groups,
        lr=rate,
        betas=(0.9, config.beta2),
        eps=1e-9,
        weight_decay=decay,
        fused=True,
    )
    if not is_muon:
        return adamw
    muon = Muon(orthogonalised, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return MuonWithAdamW(muon, adamw)


class MuonWithAdamW(Optimizer):
    """Muon for some parameters and AdamW for the others, used and saved as one optimizer."""

    def __init__(self, muon: Muon, adamw: AdamW) -> None:
        self.parts = muon, adamw
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._share_state()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take the steps of both optimizers."""
        for part in self.parts:
            part.step()  # type: ignore[no-untyped-call]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` of this class returned."""
        super().load_state_dict(state_dict)
        self._share_state()

    def _share_state(self) -> None:
        muon, adamw = self.parts
        muon.param_groups, adamw.param_groups = self.param_groups[:1], self.param_groups[1:]
        muon.state = adamw.state = self.state
