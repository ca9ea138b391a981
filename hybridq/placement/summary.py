"""A profile as text for people."""

from __future__ import annotations

from hybridq.placement.profile import OPERATORS, Profile, Transfer

SHOWN_ROWS = 1_000_000
NAME_WIDTH = 32


def describe(profile: Profile) -> str:
    """Return a table of what was measured, for a chunk of a million rows."""
    kinds = list(profile.devices)
    lines = [
        f"a task {profile.task_s * 1e3:.2f} ms, a round trip {profile.round_trip_s * 1e3:.1f} ms, page cache "
        f"{profile.page_cache_bytes_per_s / 1e9:.1f} GB/s, merging {profile.merge.at(SHOWN_ROWS) * 1e3:.0f} ms for "
        f"{SHOWN_ROWS:,} rows",
        "",
        f"ms for {SHOWN_ROWS:,} rows".ljust(NAME_WIDTH)
        + "".join(profile.devices[kind].engine.rjust(16) for kind in kinds),
    ]
    reads = sorted({name for device in profile.devices.values() for name in device.read})
    for name in reads:
        codec, _, type_class = name.partition("/")
        figures = [profile.devices[kind].reading(codec, type_class, SHOWN_ROWS) for kind in kinds]
        lines.append(_row(f"read {name}", figures))
    lines += [_row(name, [profile.devices[kind].operating(name, SHOWN_ROWS) for kind in kinds]) for name in OPERATORS]
    lines.append("")
    for kind in kinds:
        device = profile.devices[kind]
        lines.append(f"to the {device.engine}: {_transfer(device.to_device)}; back: {_transfer(device.from_device)}")
    lines += [f"not measured: {what}" for what in profile.details.get("left_out", ())]
    if "measured_in_s" in profile.details:
        lines.append(f"measured in {profile.details['measured_in_s']:.0f} s")
    return "\n".join(lines)


def _row(name: str, seconds: list[float]) -> str:
    return name.ljust(NAME_WIDTH) + "".join(f"{value * 1e3:16.2f}" for value in seconds)


def _transfer(transfer: Transfer) -> str:
    return (
        f"{transfer.latency_s * 1e6:.0f} us and {transfer.bytes_per_s / 1e9:.1f} GB/s, nine tenths of it from "
        f"{transfer.saturation_bytes / 2**20:.2g} MiB on"
    )
