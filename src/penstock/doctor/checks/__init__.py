"""The checks, a module for each cause of lost time."""

from penstock.doctor.checks import (
    broadcast,
    driver,
    failures,
    garbage,
    parallelism,
    product,
    recomputation,
    single_task,
    skew,
    small_files,
    spill,
)
from penstock.doctor.finding import Check

CHECKS: tuple[Check, ...] = tuple(
    module.check
    for module in (
        skew,
        spill,
        parallelism,
        single_task,
        broadcast,
        small_files,
        product,
        recomputation,
        failures,
        garbage,
        driver,
    )
)
