// One link with a stream in simulated time, with a BlueZ that answers as a test wants; and profiles for it.
import BlueZ
import MonotonicTime

@testable import Accessories

/// Carries the rules' commands to a device that may be away, and what happens to it back.
struct SimulatedStream {
    var link: StreamAccessoryStateMachine
    var now = Instant.zero
    var device: DeviceFacts
    let kind: StreamKind
    /// Whether it answers pages.
    var isNear = true
    /// The stream is open.
    var isOpen = false
    /// BlueZ says of a device that was paired that it is.
    var tellsBonds = true
    /// Answers for the next attempts, before the usual one; nil is success.
    var answers: [BluetoothFailure?] = []
    /// Answers are kept back until `answer`.
    var holdsAnswers = false
    var commands: [BluetoothCommand] = []
    var attempts: [Instant] = []
    var recognised: [AccessoryProfile] = []
    var lost: [AccessoryRelease] = []
    private var held: [(BluetoothCommand, BluetoothFailure?)] = []

    init(
        _ configuration: AccessoryConfiguration = AccessoryConfiguration(
            id: AccessoryID("mike"), address: "00:11:22:33:44:01"),
        kind: StreamKind = .serialPort, library: ProfileLibrary = .streams, device: DeviceFacts? = nil
    ) {
        self.kind = kind
        self.device = device ?? .classic(kind == .serialPort ? "APTT12345" : "BTH-PTT")
        link = StreamAccessoryStateMachine(configuration, kind: kind, library: library)
    }

    /// Bluetooth is on, and the device known.
    mutating func start() {
        send(.device(device))
        send(.radio(.on))
    }

    mutating func send(_ event: AccessoryLinkEvent) {
        var queue = [event]
        while !queue.isEmpty {
            for action in link.handle(queue.removeFirst(), at: now) {
                switch action {
                case .recognised(let profile, _): recognised.append(profile)
                case .lost(let reason): lost.append(reason)
                case .heard: break
                case .command(let command):
                    commands.append(command)
                    queue += perform(command)
                }
            }
            precondition(commands.count < 100_000, "the rules run in a circle")
        }
    }

    /// Lets time pass, with every deadline run when it is due.
    mutating func advance(_ duration: Duration) {
        let end = now + duration
        while let deadline = link.nextDeadline, deadline <= end {
            now = max(now, deadline)
            send(.deadline)
        }
        now = end
    }

    mutating func answer() {
        let all = held
        held = []
        for (command, failure) in all { send(.completed(command, failure)) }
    }

    private mutating func perform(_ command: BluetoothCommand) -> [AccessoryLinkEvent] {
        var events: [AccessoryLinkEvent] = []
        var failure: BluetoothFailure?
        switch command {
        case .openStream, .connect:
            attempts.append(now)
            failure = answers.isEmpty ? (isNear ? nil : .timedOut) : answers.removeFirst()
            if failure == nil {
                if case .openStream = command { isOpen = true }
                device.isConnected = true
                events.append(.device(device))
            }
        case .pair:
            failure = answers.isEmpty ? (isNear ? nil : .timedOut) : answers.removeFirst()
            if failure == nil, tellsBonds {
                device.isPaired = true
                events.append(.device(device))
            }
        case .trust:
            device.isTrusted = true
            events.append(.device(device))
        case .closeStream: isOpen = false
        default: break
        }
        guard !holdsAnswers else {
            held.append((command, failure))
            return events
        }
        return events + [.completed(command, failure)]
    }

    /// The device hangs its stream up; the link stays.
    mutating func hangUp() {
        guard isOpen else { return }
        isOpen = false
        send(.streamClosed(kind))
    }

    /// The device goes away, link and all.
    mutating func goAway() {
        isNear = false
        let wasOpen = isOpen
        isOpen = false
        if wasOpen { send(.streamClosed(kind)) }
        device.isConnected = false
        send(.device(device))
    }

    /// The device is back, and connects to us.
    mutating func comeBack() {
        isNear = true
        device.isConnected = true
        send(.device(device))
    }
}

extension DeviceFacts {
    /// A classic device that is known to BlueZ.
    static func classic(_ name: String, number: Int = 1, isPaired: Bool = true) -> DeviceFacts {
        DeviceFacts(
            id: DeviceIdentifier(path: "/org/bluez/hci0/dev_00_11_22_33_44_0\(number)")!,
            address: "00:11:22:33:44:0\(number)", name: name, services: ["1101"], isPaired: isPaired, isTrusted: false,
            isConnected: false, servicesResolved: false, battery: nil, characteristics: [])
    }
}

extension ProfileLibrary {
    /// Profiles for these tests, with the words of the real ones.
    static let streams = ProfileLibrary([
        .stream("words", "spp", names: "APTT1*", pressed: "+PTT=P", released: "+PTT=R"),
        .stream("started", "spp", names: "B01*", pressed: "+PTT=P", released: "+PTT=R", more: "start_bytes = [1]\n"),
        .stream("bonded", "spp", bonding: "required", names: "SAFE*", pressed: "+PTT=P", released: "+PTT=R"),
        .stream("unbonded", "spp", bonding: "never", names: "OPEN*", pressed: "+PTT=P", released: "+PTT=R"),
        .stream(
            "commands", "hands-free", names: "BTH-PTT", pressed: "AT+XEVENT=TALK,1", released: "AT+XEVENT=TALK,0"),
    ])
}

extension AccessoryProfile {
    static func stream(
        _ id: String, _ transport: String, bonding: String = "as-needed", names: String, pressed: String,
        released: String, more: String = ""
    ) -> AccessoryProfile {
        let text = """
            id = "\(id)"
            title = "\(id)"
            confidence = "code"
            sources = ["a test"]
            experimental = true
            transport = "\(transport)"
            bonding = "\(bonding)"
            \(more)
            [match]
            names = ["\(names)"]
            [[input]]
            decode = "text"
            [[input.control]]
            name = "ptt"
            pressed = "\(pressed)"
            released = "\(released)"
            """
        do { return try AccessoryProfile(bytes: Array(text.utf8), file: id) } catch { fatalError("\(error)") }
    }
}
