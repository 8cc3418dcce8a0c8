"""grpo-local: group-relative policy optimisation on this machine, with torch, transformers and peft.

For a token t that the model sampled, with p the policy that is trained, p_old the weights that the step began with, q
what the server told when it sampled (perhaps of older weights, or with other rounding), A the advantage of the episode
and g the weight of the token in the loss:

    w = min(p_old(t) / q(t), importance_cap)                                                      without gradient
    r = p(t) / p_old(t)
    loss = sum of g * ( -w * min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A)
                        + kl_penalty_coef * KL - entropy_coef * H ) / sum of g

The two ratios have two tasks. w makes up for whoever sampled: it is of fixed weights, p_old against q, so that a batch
that is several versions old still gives, up to the cap, the gradient of the policy as it is; the cap bounds what a
token can weigh that the old policy found unlikely. r keeps the step itself short: it begins at 1 whatever the batch's
age, and leaves its bounds only by the substeps of this very step (with one substep it never does). One ratio p / q for
both would clip away old samples by their age alone, before the step has moved anything.

KL is that of p from the weights of the start, H the entropy of p; both are of the whole distribution at the token's
place, exact and not estimated from the token. They are not weighted by w: the places are those that were visited.
All probabilities are at the temperature that was sampled with. A batch is divided at random into `num_substeps` parts,
each of which is a step of the optimiser (Adam, 0.9 and 0.95, without weight decay), with a sum of g of its own;
gradients are clipped to a norm.

    trainer.py      GrpoTrainer: the plug-in; light, it is also loaded where there is no torch
    settings.py     its options
    learner.py      Learner: takes a step
    loss.py         the formula above, as functions of tensors
    policy.py       Policy: a model, and the distributions that it gives for sampled tokens
    rows.py         Rows: sequences side by side, as a model takes them
    pictures.py     what a model's own processor makes of pictures
    gap.py          whether the server and this trainer compute the same
    saving.py       weights as a server loads them
    ask.py          one prompt, one answer: `deskroll models ask --local`
"""
