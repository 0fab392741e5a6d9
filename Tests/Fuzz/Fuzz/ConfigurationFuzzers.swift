// TOML: configurations, accessory profiles, and the rules of channels.
import FoundationEssentials
import MonotonicTime
import RelayHTTP
import RelayProtocol
import RelayServer

@testable import Accessories
@testable import Settings
@testable import pttd
@testable import pttrelay

private enum Word: String, CaseIterable { case one, two }

/// Asks a table for a value of each type.
private func ask(_ table: SettingsTable) {
    _ = table.optional("text", .string)
    _ = table.optional("integer", .integer(in: -5...1_000))
    _ = table.optional("flag", .boolean)
    _ = table.optional("time", .duration(in: .zero ... .seconds(100)))
    _ = table.optional("uuid", .uuid)
    _ = table.optional("word", SettingType<Word>.oneOf)
    _ = table.optional("list", .array(of: .string(lengthMax: 10), count: 0...3))
    _ = table.optional("some", .oneOrMore(of: .integer(in: 0...10)))
}

private let toml = """
    text = "x"
    integer = 0x7f
    flag = true
    time = "1.5s"
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    word = "two"
    list = ["a", "b"]
    some = 3
    [table]
    time = "200 ms"
    [[tables]]
    "quoted key" = 1979-05-27T07:32:00Z
    [named.one]
    flag = {a = 1}
    """

private let daemon = """
    [daemon]
    name = "Van 3"
    bus = "unix:path=/run/bus"
    [[channel]]
    link = "ptt://h:1/x?channel=00010203-0405-0607-0809-0a0b0c0d0e0f&token=AAAAAAAAAAAAAAAAAAAAAA"
    [audio]
    microphone = "plughw:Headset"
    gain = "6 dB"
    microphone-start = "when-heard"
    release-tail = "200ms"
    [recordings]
    folder = "talk"
    [policy]
    hours = ["08:00-18:00"]
    applications = ["com.example.*"]
    [ui]
    desktop = true
    [accessories.button]
    address = "AA:BB:CC:DD:EE:FF"
    profile = "ptt-z"
    gesture = "hold"
    """

private let channel = """
    mode = "full-duplex"
    queue = true
    preemption-step = 10
    talk-time-limit = "30s"
    media-time-limit = "5s"
    retry-after = "1s"
    keep-bursts = 5
    keep-time = "10min"
    """

private let relay = """
    [relay]
    listen = "[::]:4433"
    host = "relay.example"
    state = "/s"
    drain-time = "10s"
    successor = "relay2.example:4433"
    log-format = "json"
    workers = 2
    helpers = 1
    [limits]
    connections = 2048
    keep-megabytes = 128
    [[channel]]
    name = "Yard"
    queue = true
    [push]
    listen = "0.0.0.0:2197"
    [[push.client]]
    pin = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"
    topics = ["org.example.radio.voip-ptt"]
    [operator]
    listen = "127.0.0.1:9464"
    [api]
    listen = "127.0.0.1:9465"
    token-file = "/t"
    [cluster]
    servers = ["nats://h:4222"]
    place = "h:4433"
    node = "a"
    replicas = 1
    """

let configurationFuzzers: [Fuzzer] = [
    Fuzzer(name: "toml", maximum: 4_096, seeds: { [toml, daemon, channel].map(utf8) }) { bytes in
        _ = try? SettingsFile.read(bytes: bytes, file: "fuzz.toml") { root in
            ask(root)
            if let table = root.table("table") { ask(table) }
            for table in root.tables("tables", countMax: 4) { ask(table) }
            for table in root.oneOrMoreTables("more", countMax: 4) { ask(table) }
            for (name, table) in root.namedTables("named", countMax: 4) {
                expect(
                    !name.isEmpty || bytes.contains(UInt8(ascii: "\"")) || bytes.contains(UInt8(ascii: "'")),
                    "names are there")
                ask(table)
            }
        }
    },
    Fuzzer(name: "daemon-configuration", maximum: 8_192, seeds: { [utf8(daemon), utf8(toml)] }) { bytes in
        guard let configuration = try? SettingsFile.read(bytes: bytes, file: "pttd.toml", { Configuration.read($0) })
        else {
            return
        }
        expect(!configuration.displayName.isEmpty, "a name is shown")
        let ids = configuration.channels.map(\.link.channel)
        expect(Set(ids).count == ids.count, "no channel is there twice")
    },
    Fuzzer(name: "relay-configuration", maximum: 8_192, seeds: { [utf8(relay), utf8(toml)] }) { bytes in
        guard let settings = try? SettingsFile.read(bytes: bytes, file: "pttrelay.toml", RelaySettings.read) else {
            return
        }
        expect(Set(settings.channels).count == settings.channels.count, "no channel is there twice")
        expect(settings.channels.allSatisfy { settings.floorRules[$0] != nil }, "each channel has its rules")
        expect(1...16 ~= settings.workers && 0...16 ~= settings.helpers, "threads are bounded")
        expect(settings.ending.drainTime <= .seconds(60), "an end comes")
        for listen in [settings.listen, settings.operatorListen, settings.push?.listen, settings.api?.listen] {
            if let listen {
                expect(ListenAddress(argument: listen.text) == listen, "an address is read as it is written")
            }
        }
        for client in settings.push?.clients ?? [] { expect(!client.topics.isEmpty, "a client may push something") }
    },
    Fuzzer(name: "floor-settings", maximum: 1_024, seeds: { [utf8(channel)] }) { bytes in
        let read = try? SettingsFile.read(bytes: bytes, file: "pttrelay.toml") { root in
            (FloorSettings.rules(root), FloorSettings.timers(root), FloorSettings.retention(root))
        }
        guard let (_, timers, retention) = read else { return }
        expect(
            retention.bursts <= RelayProtocolLimits.keptBurstsMaximum && retention.isOn == (retention.time > .zero),
            "little is kept, and for a time")
        expect(
            FloorSettings.mediaTimeRange.contains(timers.mediaTimeout) && timers.talkTimeLimit >= .seconds(5),
            "a burst has its time")
    },
    Fuzzer(
        name: "profile", maximum: 8_192, seeds: { ProfileLibrary.shippedFiles.map { $0.bytes } }
    ) { bytes in
        guard let profile = try? AccessoryProfile(bytes: bytes, file: "fuzz.toml") else { return }
        do {
            let again = try AccessoryProfile(bytes: utf8(profile.text), file: "written.toml")
            expect(again == profile, "a profile is what was read:\n\(profile.text)")
        } catch { expect(false, "what is written is read: \(error)\n\(profile.text)") }
        var machine = ControlsStateMachine(profile)
        for input in profile.inputs.indices {
            _ = machine.handle(.value(input: input, bytes: bytes), at: .zero)
            _ = machine.handle(.value(input: input, bytes: Array(bytes.prefix(1))), at: .zero)
        }
        _ = machine.handle(.lost, at: .zero)
        expect(!machine.isDown && !machine.isActive, "nothing is held of what is gone")
    },
    Fuzzer(
        name: "action", maximum: 512,
        seeds: { ["transmit", "command: notify-send \"a b\" \"\\\"\"", "channel-up"].map(utf8) }
    ) { bytes in
        guard let text = bytes.asText, let action = ControlAction(text) else { return }
        // What is written is longer than what was read where it has to be quoted.
        guard action.text.utf8.count <= ControlAction.textMax else { return }
        expect(ControlAction(action.text) == action, "an action is what was read: \(action.text)")
    },
]
