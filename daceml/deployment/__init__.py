"""Compiled models that leave this process: libraries for C and C++ programs, which PyTorch loads, too."""
