"""Fill a `relive.DeviceBuffer` by stepping a simulator whose environments live on a GPU.

`Recorder` is used in place of the environment, as `relive.gymnasium.Recorder` is. It takes final observations from
where each simulator puts them and never waits for the device.
"""

from .._base.extras import needs

with needs("torch", "relive.simulators"):
    from .recorder import Recorder as Recorder
    from .schemas import schema_of as schema_of
    from .simulator import Simulator as Simulator
    from .simulator import Step as Step

__all__ = ["Recorder", "Simulator", "Step", "schema_of"]
