"""`daceml.compile_step`: forward, backward and the optimizer's update as one program."""
