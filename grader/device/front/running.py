"""A client's programs: what is compiled, what is known of it, and its launches.

The other requests of a client are in `session`. The memory of a launch is booked
before it runs: temporaries and results together, where a donated argument makes room for what
it becomes.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from grader.device.flags import names_files
from grader.device.front.arrays import DEVICE, Array, Placement, Shardings
from grader.device.front.handles import Handles
from grader.device.front.holding import Holding, failed
from grader.device.messages import wire
from grader.device.messages.dtypes import NUMBERS, size
from grader.device.messages.errors import INVALID, NOT_FOUND, UNIMPLEMENTED, Failed
from grader.device.messages.protocol import Messages
from grader.records.record import Collective

_LARGEST_TEXT = 1 << 30


@dataclass(eq=False)
class Program:
    """A program that was compiled for a client."""

    number: int
    devices: list[int]
    about: wire.Compiled
    results: list[Placement]
    sizes: list[int]
    """Bytes that each result takes of one device's memory."""
    deleted: bool = False


@dataclass(eq=False)
class Run:
    """The status of one launch: nothing yet, or how it ended."""

    ended: bool = False
    error: Failed | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def end(self, error: Failed | None) -> None:
        """The launch has ended."""
        self.ended, self.error = True, error
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


class Programs:
    """The programs of one client."""

    def __init__(
        self, messages: Messages, shardings: Shardings, holding: Holding, arrays: Handles
    ) -> None:
        self._options = messages.find("XlaCompileOptionsProto")
        self._shardings = shardings
        self._holding = holding
        self._desk = holding.desk
        self._arrays = arrays
        self._found: dict[int, Program] = {}
        self._runs: dict[int, Run] = {}
        self._numbers: set[int] = set()
        self._under_way: dict[int, deque[float]] = {}
        """Program -> when each of its launches was asked for that has not ended, in turn."""
        self._closed = False

    def close(self) -> None:
        """Forget all programs."""
        self._closed = True
        numbers = [program.number for program in self._found.values()]
        self._found.clear()
        self._runs.clear()
        self._under_way.clear()
        self._desk.machine.tell(wire.Drop(programs=numbers))

    def poison(self, handle: int, error: Failed) -> None:
        """A launch has failed before it began."""
        if handle:
            self._runs[handle] = Run(True, error)

    def owns(self, number: int) -> bool:
        """Whether the program with the executor's `number` is, or was, of this client's."""
        return number in self._numbers

    def asked(self, number: int) -> float | None:
        """When the launch was asked for that runs now, of the program with this `number`."""
        launches = self._under_way.get(number)
        return launches[0] if launches else None

    def _get(self, handle: int) -> Program:
        if handle not in self._found:
            raise Failed(NOT_FOUND, f"there is no program {handle}")
        if self._found[handle].deleted:
            raise Failed(INVALID, "the program has been deleted")
        return self._found[handle]

    # --- compiling

    def on_compile(self, op: int, asked: Any) -> None:
        """Compile a program; the answer comes once it is compiled."""
        if asked.host_callbacks:
            raise Failed(UNIMPLEMENTED, "host callbacks need the client that comes with the device")
        if asked.program.type_name != "xla::ifrt::XlaProgram":
            raise Failed(UNIMPLEMENTED, f"programs of the type {asked.program.type_name[:80]}")
        try:
            options = self._options.FromString(asked.compile_options.data).compile_options
        except DecodeError as error:
            raise Failed(INVALID, f"no compile options: {error}") from error
        assignment = options.executable_build_options.device_assignment
        devices = [
            number
            for computation in assignment.computation_devices
            for number in computation.replica_device_ids
        ] or [0]
        self._shardings.check(devices)
        self._confine(options)
        text = asked.program.data
        if len(text) > _LARGEST_TEXT:
            raise Failed(INVALID, f"a program of {len(text)} bytes")
        number, began = self._desk.machine.number(), self._desk.now()
        self._numbers.add(number)
        order = wire.Compile(0, number, options.SerializeToString(), list(devices))

        def heard(answer: Any, payload: bytearray) -> None:
            error = failed(answer)
            if error is None:
                start, end = self._desk.times(answer, began)
                self._compile_entry(answer, list(devices), len(text), (began, start, end))
                self._compiled(op, Program(number, list(devices), answer, [], []))
            else:
                self._arrays.reply(op, error=error)

        self._desk.machine.ask(order, heard, text)

    @staticmethod
    def _confine(options: Any) -> None:
        """Keep options that concern files, or end XLA, from the executor.

        Those of the client's `XLA_FLAGS`, and their defaults, are left out.

        Raises:
          Failed: the program itself names one, in `compiler_options`.
        """
        for name, value in options.env_option_overrides.items():
            if names_files(name) and not value.HasField("int_field"):  # a number names no file
                words = "XLA could reach files by it, and this device has none"
                raise Failed(INVALID, f"the compiler option {name[:80]} is refused: {words}")
        debug = options.executable_build_options.debug_options
        for option, _ in debug.ListFields():
            if names_files(option.name):
                debug.ClearField(option.name)
        options.ClearField("target_config")
        options.executable_build_options.device_ordinal = -1  # none: XLA aborts on other negatives

    def _compile_entry(
        self,
        about: wire.Compiled,
        devices: list[int],
        count: int,
        times: tuple[float, float, float | None],
    ) -> None:
        asked, start, end = times
        self._holding.entry(
            "compile",
            start,
            end=end,
            asked=asked,
            program=about.name,
            bytes=count,
            devices=devices,
            temporaries=about.temporaries,
            flops=about.flops,
            accessed=about.accessed,
            collectives=[Collective(*each) for each in about.collectives],
        )

    def _compiled(self, op: int, program: Program) -> None:
        about = program.about
        if self._closed:
            self._desk.machine.tell(wire.Drop(programs=[program.number]))
            return
        for output in about.outputs:
            program.results.append(
                self._shardings.of_program(
                    program.devices, output.sharding, output.shape, output.memory
                )
            )
            count = math.prod(program.results[-1].shapes[0]) * size(output.dtype)
            program.sizes.append(count if output.memory == DEVICE else 0)
        handle, ready = self._arrays.new_handle(), self._arrays.new_handle()
        self._found[handle] = program

        def fill(response: Any) -> None:
            found = response.compile_response
            found.loaded_executable_handle = handle
            found.name = about.name
            found.num_devices = len(program.devices)
            found.device_ids.extend(program.devices)
            found.addressable_device_ids.extend(program.devices)
            found.ready_future_handle = ready
            if about.fingerprint:
                found.fingerprint_value = about.fingerprint

        self._arrays.reply(op, fill)

    def on_loaded_executable_metadata(self, op: int, asked: Any) -> None:
        """What a program takes and gives."""
        about = self._get(asked.loaded_executable_handle).about

        def fill(response: Any) -> None:
            found = response.loaded_executable_metadata_response
            found.SetInParent()
            for each in about.parameter_shardings or ():
                found.parameter_shardings.shardings.add().ParseFromString(each)
            for output in about.outputs:
                found.output_shardings.shardings.add().ParseFromString(output.sharding)
            found.parameter_layouts_list.SetInParent()
            for layout in about.layouts:
                found.parameter_layouts_list.layouts.add().minor_to_major.extend(layout)
            found.output_layouts_list.SetInParent()
            for output in about.outputs:
                found.output_layouts_list.layouts.add().minor_to_major.extend(output.layout)
            kinds = found.output_memory_kinds.memory_kind_lists.add()
            kinds.memory_kinds.extend(output.memory for output in about.outputs)
            found.donated_input_indices.SetInParent()
            found.donated_input_indices.donated_input_indices.extend(about.donated)
            stats = found.compiled_memory_stats
            stats.generated_code_size_in_bytes = about.code
            stats.argument_size_in_bytes = about.arguments_size
            stats.output_size_in_bytes = about.outputs_size
            stats.alias_size_in_bytes = about.alias_size
            stats.temp_size_in_bytes = about.temporaries
            found.size_of_generated_code_in_bytes = about.code

        self._arrays.reply(op, fill)

    def on_loaded_executable_human_readable_program_text(self, op: int, asked: Any) -> None:
        """The optimised HLO of a program, as text."""
        program = self._get(asked.loaded_executable_handle)

        def heard(answer: Any, payload: bytearray) -> None:
            def fill(response: Any) -> None:
                found = response.loaded_executable_human_readable_program_text_response
                found.human_readable_program_text = answer.text

            self._arrays.reply(op, fill, failed(answer))

        self._desk.machine.ask(wire.Text(0, program.number), heard)

    def on_loaded_executable_cost_analysis(self, op: int, asked: Any) -> None:
        """XLA's estimates of what a program costs."""
        costs = self._get(asked.loaded_executable_handle).about.costs

        def fill(response: Any) -> None:
            found = response.loaded_executable_cost_analysis_response.attributes
            found.SetInParent()
            for name, value in costs.items():
                found.attributes[name].float_value = value

        self._arrays.reply(op, fill)

    # --- launching

    def on_loaded_executable_execute(self, op: int, asked: Any) -> None:
        """Launch a program. The answer comes at once, and the results are filled later."""
        program = self._get(asked.loaded_executable_handle)
        about = program.about
        arguments = [self._arrays.get(handle) for handle in asked.args_handles]
        self._fits(program, arguments, asked)
        kept = set(asked.execute_options.non_donatable_input_indices)
        donated = [at for at in about.donated if at not in kept and at < len(arguments)]
        if len({id(arguments[at]) for at in donated}) < len(donated):
            raise Failed(INVALID, "one array is donated twice")
        peak = self._book(program, arguments, donated)
        began = self._desk.now()
        buffers = [[buffer.number for buffer in array.buffers] for array in arguments]
        places = {
            result: [buffer.place for buffer in arguments[at].buffers]
            for result, at in about.over.items()
            if at not in kept
        }
        for at in donated:
            self._holding.delete(arguments[at])
        shards = [
            self._holding.make_all(output.dtype, placement, places.get(result))
            for result, (output, placement) in enumerate(
                zip(about.outputs, program.results, strict=True)
            )
        ]
        made = [
            self._holding.array(output.dtype, output.shape, placement, each)
            for output, placement, each in zip(about.outputs, program.results, shards, strict=True)
        ]
        handles = list(asked.result_array_handle) or [self._arrays.new_handle() for _ in made]
        for handle, array in zip(handles, made, strict=True):
            self._arrays.keep(handle, array)
        flat = [buffer for each in shards for buffer in each]
        order = wire.Launch(
            0,
            program.number,
            buffers,
            [[buffer.number for buffer in each] for each in shards],
            [list(array.shape) for array in arguments],
            [at for at in about.donated if at not in donated],
            self._desk.options.compute.seconds(about.flops, about.accessed),
        )

        def heard(answer: Any, payload: bytearray) -> None:
            if under_way:
                under_way.popleft()
            self._launched(program, answer, began, peak)
            self._holding.fill(flat, failed(answer))
            run.end(failed(answer))

        under_way = self._under_way.setdefault(program.number, deque())
        run = Run()
        answer_status = asked.result_status_handle
        if not answer_status and asked.execute_options.fill_status:
            answer_status = self._arrays.new_handle()
        if answer_status:
            self._runs[answer_status] = run
        self._desk.machine.ask(order, heard)
        under_way.append(began)
        self._reply_launched(op, answer_status, bool(asked.result_array_handle), handles, program)

    def _fits(self, program: Program, arguments: Sequence[Array], asked: Any) -> None:
        """See that the arguments are what the program takes.

        Raises:
          Failed: they are not.
        """
        about = program.about
        if len(arguments) != len(about.ranks):
            raise Failed(INVALID, f"{len(arguments)} arguments for {len(about.ranks)} parameters")
        for array, rank in zip(arguments, about.ranks, strict=True):
            if [buffer.device for buffer in array.buffers] != program.devices:
                raise Failed(INVALID, "an argument that does not lie on the program's devices")
            if rank >= 0 and len(array.shape) != rank:
                raise Failed(INVALID, f"an argument of the shape {list(array.shape)}")
        if asked.result_array_handle and len(asked.result_array_handle) != len(about.outputs):
            raise Failed(INVALID, f"{len(asked.result_array_handle)} handles for results")

    def _book(self, program: Program, arguments: Sequence[Array], donated: Sequence[int]) -> int:
        """See that temporaries and results fit; returns the first device's peak meanwhile."""
        about, account = program.about, self._holding.account
        results = sum(program.sizes)
        wanted = {}
        for place, device in enumerate(program.devices):
            reused = sum(
                buffer.bytes
                for at in donated
                if (buffer := arguments[at].buffers[place]).memory == DEVICE
            )
            wanted[device] = about.temporaries + max(0, results - reused)
        self._holding.check(
            wanted,
            f"the program {about.name} ({results} bytes of results, "
            f"{about.temporaries} bytes of temporaries)",
            about.name,
        )
        self._desk.ledger.momentary(account, wanted)
        first = program.devices[0]
        return self._desk.ledger.in_use[first] + wanted[first]

    def _launched(self, program: Program, answer: Any, asked: float, peak: int) -> None:
        about = program.about
        start, end = self._desk.times(answer, asked)
        error = failed(answer)
        self._holding.entry(
            "launch",
            start,
            end=end if error is None else None,
            asked=asked,
            program=about.name,
            devices=program.devices,
            bytes=sum(program.sizes),
            temporaries=about.temporaries,
            in_use=peak,
            flops=about.flops,
            accessed=about.accessed,
            detail="" if error is None else error.message,
        )

    def _reply_launched(
        self, op: int, status: int, known: bool, handles: Sequence[int], program: Program
    ) -> None:
        def fill(response: Any) -> None:
            found = response.loaded_executable_execute_response
            found.SetInParent()
            found.status_handle = status
            if known:
                return
            for handle, output, placement in zip(
                handles, program.about.outputs, program.results, strict=True
            ):
                result = found.outputs.add()
                result.dtype.kind = NUMBERS[output.dtype]
                result.shape.SetInParent()
                result.shape.dims.extend(output.shape)
                result.sharding.CopyFrom(self._shardings.write(placement))
                result.array_handle = handle

        self._arrays.reply(op, fill)

    def on_loaded_executable_fetch_execute_result(self, op: int, asked: Any) -> None:
        """How a launch ended; the answer comes once it has."""
        run = self._runs.pop(asked.result_status_handle, None)
        if run is None:
            raise Failed(NOT_FOUND, "there is no such launch")

        def ended() -> None:
            def fill(response: Any) -> None:
                response.loaded_executable_fetch_execute_result_response.SetInParent()

            self._arrays.reply(op, fill, run.error)

        if run.ended:
            ended()
        else:
            run.waiting.append(ended)

    # --- the end of a program

    def on_loaded_executable_delete(self, op: int, asked: Any) -> None:
        """Delete a program; its handle stays."""
        self._get(asked.loaded_executable_handle).deleted = True
        future = self._arrays.new_handle()

        def fill(response: Any) -> None:
            response.loaded_executable_delete_response.future_handle = future

        self._arrays.reply(op, fill)

    def on_loaded_executable_is_deleted(self, op: int, asked: Any) -> None:
        """Whether a program was deleted."""
        found = self._found.get(asked.loaded_executable_handle)
        deleted = found is None or found.deleted

        def fill(response: Any) -> None:
            response.loaded_executable_is_deleted_response.is_deleted = deleted

        self._arrays.reply(op, fill)

    def on_loaded_executable_destruct(self, op: int, asked: Any) -> None:
        """Forget a program."""
        found = self._found.pop(asked.loaded_executable_handle, None)
        if found is not None:
            self._desk.machine.tell(wire.Drop(programs=[found.number]))

        def fill(response: Any) -> None:
            response.loaded_executable_destruct_response.SetInParent()

        self._arrays.reply(op, fill)
