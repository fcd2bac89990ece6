"""Better ways to train on several devices, found by simulation: dPRO's search over what is fused and sent."""
