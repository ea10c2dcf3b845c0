"""``python -m kvbench doctor`` answers: is this press sound?"""

from kvbench.checks.findings import faults_among, findings_of, findings_table
from kvbench.cli.parameters import Device, Model, Press
from kvbench.cli.result import Result
from kvbench.experiments.catalogue import check_is_press_alone, check_ratios, single_policy
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from policies import LazyModule

examination = LazyModule("kvbench.checks.doctor")
models = LazyModule("kvbench.models.load")


def command(
    press: Press,
    model: Model = "reference",
    device: Device = "auto",
) -> Result:
    """Checks one press against the contract of every policy; fails if the press breaks it."""
    policy = single_policy(press)
    check_is_press_alone(policy)
    check_ratios("doctor", [policy])
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, "float32")
    if missing := models.missing_weights([policy], loaded):
        raise KVBenchError(missing[policy.name])
    patient = examination.admit(policy, loaded)
    findings = findings_of(len(examination.CHECKS), lambda begin: examination.examine(patient, begin))
    table = findings_table(policy.name, findings)
    if not (wrong := faults_among(findings)):
        return Result([table], verdict="sound")
    reason = f"{wrong[0].check} {wrong[0].text}"
    return Result([table], verdict=f"broken: {reason}", fault=f"{policy.name} is not sound: {reason}")
