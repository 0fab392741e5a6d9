// The devices that udev rules have tagged for pttd, as they come and go. No other device is ever opened.
import Logging
import MonotonicTime
import Reactor

/// What the tagged devices do.
public enum LinuxInputEvent: Sendable {
    /// A device is there and is read.
    case added(InputDevice)
    /// A key of a device (by its node) went down or came up.
    case key(node: String, KeyEdge)
    /// Bytes of a serial port (by its node) came, and when they were read.
    case bytes(node: String, [UInt8], at: Instant)
    /// A device is gone; its held keys came up before.
    case removed(node: String)
    /// A tagged device cannot be used, or its rule is wrong; nil: that is over.
    case problem(node: String, String?)
}

/// A device that is read until `shut`.
protocol OpenDevice {
    var info: InputDevice { get }
    func shut()
}

/// Reads input devices and serial ports that carry the udev tag `pttd`.
///
/// It lives on an event loop; its handler is called there, in order.
public actor LinuxInputMonitor {
    /// The tag: `TAG+="pttd"` in a udev rule.
    public static let tag = "pttd"

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop as its executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let logger: Logger
    private let handler: @Sendable (LinuxInputEvent) -> Void
    private var machine = TaggedDevicesStateMachine()
    private var udev: UdevDevices?
    private var access: AccessWatch?
    private var devices: [String: any OpenDevice] = [:]
    private var timer: EventLoop.Timer?
    private var isStarted = false

    /// A monitor that does nothing until `start`.
    public init(loop: EventLoop, logger: Logger, handler: @escaping @Sendable (LinuxInputEvent) -> Void) {
        self.loop = loop
        self.logger = logger
        self.handler = handler
    }

    /// The devices that are read.
    public var openDevices: [InputDevice] { devices.values.map(\.info).sorted { $0.node < $1.node } }

    /// Opens the tagged devices that are there, and those that come.
    ///
    /// - Throws: `LinuxInputError.udev` where udev does not work; other input keeps working.
    public func start() throws(LinuxInputError) {
        guard udev == nil else { return }
        isStarted = true
        // First the news, then the list: what comes in between is told twice rather than never.
        udev = try UdevDevices(tag: Self.tag, loop: loop) { [weak self] news in
            self?.assumeIsolated { $0.received(news) }
        }
        readAll()
    }

    /// Closes all devices; held keys come up.
    public func stop() {
        isStarted = false
        udev?.shut()
        udev = nil
        handle(.all([]))
        timer?.cancel()
        timer = nil
        access?.shut()
        access = nil
    }

    private func received(_ news: UdevDevices.News) {
        switch news {
        case .tagged(let device): handle(.tagged(device))
        case .untagged(let node): handle(.untagged(node: node))
        case .missed:
            logger.warning("Events of udev were lost; reading its devices again")
            readAll()
        }
    }

    private func readAll() {
        guard let all = udev?.all else { return logger.warning("The list of input devices cannot be read") }
        handle(.all(all))
    }

    // MARK: The rules and their doing

    func handle(_ event: TaggedDevicesStateMachine.Event) {
        var actions = machine.handle(event, at: .now)
        var index = 0
        while index < actions.count {
            if let outcome = carryOut(actions[index]) { actions += machine.handle(outcome, at: .now) }
            index += 1
        }
        schedule()
    }

    private func carryOut(_ action: TaggedDevicesStateMachine.Action) -> TaggedDevicesStateMachine.Event? {
        switch action {
        case .open(let device): return open(device)
        case .close(let node): close(node)
        case .problem(let node, let problem):
            logger.warning("Input device", metadata: ["node": "\(node)", "problem": "\(problem ?? "solved")"])
            handler(.problem(node: node, problem))
        }
        return nil
    }

    private func open(_ tagged: TaggedDevice) -> TaggedDevicesStateMachine.Event {
        let node = tagged.node
        do throws(LinuxInputError) {
            let device = try opened(tagged)
            devices[node] = device
            logger.info("Input device", metadata: ["node": "\(node)", "name": "\(device.info.name)"])
            handler(.added(device.info))
            return .opened(node: node)
        } catch {
            // The right may have come before the watch did.
            if case .permission = error, watchAccess(of: node) { return open(tagged) }
            return .failed(node: node, error)
        }
    }

    private func opened(_ tagged: TaggedDevice) throws(LinuxInputError) -> any OpenDevice {
        let node = tagged.node
        let onEdge: (KeyEdge) -> Void = { [weak self] edge in
            self?.assumeIsolated { $0.handler(.key(node: node, edge)) }
        }
        let onLoss: (LinuxInputError) -> Void = { [weak self] error in
            self?.assumeIsolated { $0.lost(node, error) }
        }
        guard tagged.isSerial else {
            return try EvdevDevice(tagged, loop: loop, onEdge: onEdge, onLoss: onLoss)
        }
        if let line = tagged.rule.line {
            return try SerialLineSwitch(tagged, line: line, loop: loop, onEdge: onEdge, onLoss: onLoss)
        }
        return try SerialPort(
            tagged, loop: loop,
            onBytes: { [weak self] bytes, time in
                self?.assumeIsolated { $0.handler(.bytes(node: node, bytes, at: time)) }
            }, onLoss: onLoss)
    }

    private func close(_ node: String) {
        guard let device = devices.removeValue(forKey: node) else { return }
        device.shut()
        handler(.removed(node: node))
    }

    private func lost(_ node: String, _ error: LinuxInputError) {
        logger.info("Input device lost", metadata: ["reason": "\(error)"])
        close(node)
        handle(.lost(node: node, error))
    }

    /// Whether it has begun just now.
    private func watchAccess(of node: String) -> Bool {
        do throws(SystemError) {
            if access == nil {
                access = try AccessWatch(loop: loop) { [weak self] node in
                    self?.assumeIsolated { $0.accessChanged(node) }
                }
            }
            return try access?.add(folderOf: node) ?? false
        } catch {
            logger.warning(
                "Later changes of permissions are not detected", metadata: ["node": "\(node)", "reason": "\(error)"])
            return false
        }
    }

    private func accessChanged(_ node: String?) {
        handle(.accessChanged(node: node))
        if node == nil { logger.warning("Changes of permissions were lost; all devices that were denied are tried") }
    }

    private func schedule() {
        timer?.cancel()
        timer = nil
        guard isStarted, let deadline = machine.nextDeadline else { return }
        timer = loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.handle(.deadline) } }
    }
}
