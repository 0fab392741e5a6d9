// Carries one notification between its state machine and org.freedesktop.Notifications. No rules.
import DBus
import Logging
import MonotonicTime
import Reactor

/// A notification on the user's desktop.
actor NotificationPresenter {
    /// What becomes of it.
    enum Event: Sendable {
        case gone
        /// A click on the button of that key, `after` it appeared.
        case clicked(key: String, after: Duration)
    }

    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private static let name = "org.freedesktop.Notifications"
    private static let path: DBusObjectPath = "/org/freedesktop/Notifications"
    /// The first call may have to start the server.
    private static let startTimeout = Duration.seconds(25)
    private static let timeout = Duration.seconds(5)

    private let bus: DBusConnection
    private let images: ImageFiles
    private let logger: Logger
    private let handler: @Sendable (Event) -> Void
    private var machine = NotificationStateMachine()
    private var timer: EventLoop.Timer?
    private var watch: DBusNameWatch?
    private var match: DBusMatch?

    /// Nothing on the screen. `handler` is called on the loop.
    init(bus: DBusConnection, images: ImageFiles, logger: Logger, handler: @escaping @Sendable (Event) -> Void) {
        self.bus = bus
        loop = bus.loop
        self.images = images
        self.logger = logger
        self.handler = handler
    }

    /// Watches for servers.
    func start() async throws(DBusError) {
        match = try await bus.addMatch(DBusMatchRule(sender: Self.name, path: Self.path, interface: Self.name)) {
            [weak self] signal in self?.assumeIsolated { $0.received(signal) }
        }
        watch = try await bus.watchName(Self.name) { [weak self] _ in
            self?.assumeIsolated { $0.handle(.serverChanged) }
        }
    }

    /// Takes the notification away and stops watching.
    func stop() async {
        handle(.wanted(nil))
        timer?.cancel()
        timer = nil
        if let match { await bus.removeMatch(match) }
        if let watch { await bus.unwatchName(watch) }
        match = nil
        watch = nil
    }

    /// What there is to show from now on.
    func show(_ view: NotificationView?) { handle(.wanted(view)) }

    private func handle(_ event: NotificationStateMachine.Event) {
        for action in machine.handle(event, at: .now) { perform(action) }
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.handle(.deadline) } }
        }
    }

    private func perform(_ action: NotificationStateMachine.Action) {
        switch action {
        case .askCapabilities(let server): Task { await askCapabilities(server: server) }
        case .notify(let view, let capabilities, let replacing, let server):
            let picture = view.image.flatMap { image in images.assumeIsolated { $0.picture(of: image) } }
            let request = NotificationRequest(
                view, capabilities: capabilities, replacing: replacing, picture: picture)
            Task { await notify(request, server: server) }
        case .close(let number):
            // A server that does not answer has nothing on the screen either.
            bus.assumeIsolated { bus in
                try? bus.send(
                    destination: Self.name, path: Self.path, interface: Self.name, method: "CloseNotification",
                    arguments: [.uint32(number)])
            }
        case .gone: handler(.gone)
        case .clicked(let key, let shown): handler(.clicked(key: key, after: shown))
        }
    }

    private func askCapabilities(server: Int) async {
        do {
            let answer = try await call("GetCapabilities", [], timeout: Self.startTimeout)
            let capabilities: [String] = try answer.argument(0)
            handle(.capabilities(Set(capabilities), server: server))
        } catch {
            logger.debug("no notifications", metadata: ["why": "\(error)"])
            handle(.capabilities(nil, server: server))
        }
    }

    private func notify(_ request: NotificationRequest, server: Int) async {
        do {
            let number: UInt32 = try await call("Notify", request.arguments, timeout: Self.timeout).argument(0)
            handle(.notified(number, server: server))
        } catch {
            logger.debug("a notification was not taken", metadata: ["why": "\(error)"])
            let isUnknown = error.remoteName == "org.freedesktop.DBus.Error.ServiceUnknown"
            handle(isUnknown ? .serverUnknown(server: server) : .notified(nil, server: server))
        }
    }

    private func call(_ method: String, _ arguments: [DBusValue], timeout: Duration) async throws(DBusError)
        -> [DBusValue]
    {
        try await bus.call(
            destination: Self.name, path: Self.path, interface: Self.name, method: method, arguments: arguments,
            timeout: timeout)
    }

    private func received(_ signal: DBusMessage) {
        guard let number: UInt32 = signal.arguments.first?.get(), signal.arguments.count == 2 else { return }
        switch signal.member {
        case "NotificationClosed":
            guard let reason: UInt32 = signal.arguments[1].get() else { return }
            handle(.closed(number, reason: reason))
        case "ActionInvoked":
            guard let key = signal.arguments[1].stringValue else { return }
            handle(.actionInvoked(number, key: key))
        default: return
        }
    }
}
