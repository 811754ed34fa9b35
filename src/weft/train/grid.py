"""How the recipe's `processes:` arranges the processes that torchrun has started.

    4 processes, tensor: 2        process 0 · 1     the same samples: `tensor`
                                  process 2 · 3
                                          the same part of the network: `data`

Tensor parallel peers are neighbours in rank, because they exchange the most: they should be on one machine.
"""

from dataclasses import replace

from weft.errors import RecipeError
from weft.recipe.processes import ProcessesSection
from weft.train.processes import Grid, Processes


def check_shape(section: ProcessesSection, world: int) -> None:
    """Raises RecipeError if so many processes cannot be arranged as asked for."""
    tensor = section.tensor
    if world % tensor:
        raise RecipeError(
            f"processes.tensor is {tensor}, which does not divide the {_processes(world)} that {_were(world)} started. "
            f"Start them with torchrun --nproc-per-node {tensor * max(1, world // tensor)}, or change processes.tensor."
        )
    if section.data is not None and section.data * tensor != world:
        raise RecipeError(
            f"processes.data is {section.data} and processes.tensor {tensor}, which makes {section.data * tensor} "
            f"processes; {_processes(world)} {_were(world)} started. Leave data out: it follows from the others."
        )


def arranged(processes: Processes, section: ProcessesSection) -> Processes:
    """The processes as the recipe wants them."""
    check_shape(section, processes.world)
    count, tensor = processes.world // section.tensor, section.tensor
    is_sharded, is_exact = section.sharded and count > 1, section.exact or processes.world == 1
    if tensor == 1:
        zero = section.stage if section.engine == "deepspeed" and count > 1 else None
        return replace(processes, is_sharded=is_sharded, is_exact=is_exact, zero=zero)
    rows = [processes.join(range(row * tensor, (row + 1) * tensor)) for row in range(count)]
    columns = [processes.join(range(column, processes.world, tensor)) for column in range(tensor)]
    row, column = divmod(processes.rank, tensor)
    grid = Grid(replace(columns[column], is_sharded=is_sharded, is_exact=is_exact), rows[row])
    return replace(processes, is_sharded=is_sharded, is_exact=is_exact, grid=grid)


def _processes(world: int) -> str:
    return "1 process" if world == 1 else f"{world} processes"


def _were(world: int) -> str:
    return "was" if world == 1 else "were"
