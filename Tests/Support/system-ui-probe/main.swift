// The system user interface on its own, shown what standard input says and telling on standard output what the user does.
// Commands, one a line, fields separated by tabs:
//   channel NAME [PICTURE]    status ready|connecting|unavailable [WHY]    mode half|full|listen    speaker NAME [PICTURE]
//   silent    transmitting    stopped    failed WHY    none
//   nearby [ID NAME CREATOR MEMBERS open|code|ask]…    problem WHY    newcomers [ID NAME CHANNEL]…
// A picture is a PNG or JPEG file, or the name of an icon.
import DBus
import Glibc
import Logging
import PushToTalkCore
import Reactor
import SystemUI

func say(_ line: String) {
    // At once, whatever standard output is: somebody waits for it.
    let bytes = Array("\(line)\n".utf8)
    _ = write(1, bytes, bytes.count)
}

func picture(_ field: String) -> PTImage? {
    guard field.hasPrefix("/") else { return PTImage(named: field) }
    guard let file = fopen(field, "r") else { return nil }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: PTImage.byteCountMax + 1)
    let count = fread(&bytes, 1, bytes.count, file)
    return PTImage(data: bytes.prefix(count))
}

func shown(_ state: SystemUIState, after command: [String]) -> SystemUIState? {
    var state = state
    let image = command.count > 2 ? picture(command[2]) : nil
    switch (command[0], command.count > 1 ? command[1] : "") {
    case ("none", _): state = SystemUIState()
    case ("channel", let name):
        state.channel = SystemUIState.Channel(
            descriptor: PTChannelDescriptor(name: name, image: image), serviceStatus: .ready)
    case ("status", "ready"): state.channel?.serviceStatus = .ready
    case ("status", "connecting"): state.channel?.serviceStatus = .connecting
    case ("status", "unavailable"): state.channel?.serviceStatus = .unavailable
    case ("mode", "half"): state.channel?.transmissionMode = .halfDuplex
    case ("mode", "full"): state.channel?.transmissionMode = .fullDuplex
    case ("mode", "listen"): state.channel?.transmissionMode = .listenOnly
    case ("speaker", let name): state.speaker = PTParticipant(name: name, image: image)
    case ("silent", _): state.speaker = nil
    case ("transmitting", _): state.isTransmitting = true
    case ("stopped", _): state.isTransmitting = false
    default: return nil
    }
    if command[0] == "status" { state.channel?.serviceDetail = command.count > 2 ? command[2] : "" }
    return state
}

/// The fields in groups of `size`.
func groups(_ fields: [String], of size: Int) -> [[String]] {
    stride(from: 0, to: fields.count - size + 1, by: size).map { Array(fields[$0..<$0 + size]) }
}

func nearby(_ state: SystemUINearby, after command: [String]) -> SystemUINearby? {
    var state = state
    let fields = Array(command.dropFirst())
    let admissions: [String: SystemUINearby.Admission] = ["open": .open, "code": .code, "ask": .ask]
    switch command[0] {
    case "nearby":
        state.channels = groups(fields, of: 5).map {
            SystemUINearby.Channel(
                id: $0[0], channel: $0[0], name: $0[1], creator: $0[2], members: Int($0[3]) ?? 0,
                admission: admissions[$0[4]] ?? .unknown, isOwn: false)
        }
    case "newcomers":
        state.newcomers = groups(fields, of: 3).map {
            SystemUINearby.Newcomer(id: $0[0], name: $0[1], channelName: $0[2])
        }
    case "problem": state.problem = fields.first ?? ""
    default: return nil
    }
    return state
}

var logger = Logger(label: "probe")
logger.logLevel = .debug
let loop = try EventLoop(name: "probe")
let bus = DBusConnection(to: .session, on: loop, logger: logger)
try await bus.connect()
let ui = SystemUI(bus: bus, logger: logger) { say("\($0)") }
try await ui.start()
say("started")
var state = SystemUIState()
var around = SystemUINearby()
while let line = readLine() {
    let command = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
    if command.count > 1, command[0] == "failed" {
        await ui.failed(command[1])
    } else if let next = nearby(around, after: command) {
        around = next
        await ui.update(nearby: around)
    } else if let next = shown(state, after: command) {
        state = next
        await ui.update(state)
    } else {
        say("unknown: \(line)")
    }
}
await ui.stop()
await bus.close()
loop.stop()
say("ended")
