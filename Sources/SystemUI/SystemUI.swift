// The system user interface: joins the state machine to the notification, the tray icon and its menu.
import DBus
import Glibc
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor

/// Push-to-talk on the user's desktop: a notification of who is speaking, and a tray icon with a menu.
///
/// Give it the current state; it reports the user's actions. A notification server, a tray or a bus may be missing: it
/// waits until they appear, and makes no calls before that. It neither connects nor closes the bus. It is meant for the
/// user's session bus: any program that can call its menu can talk.
public actor SystemUI {
    /// The loop it lives on, which is the bus's.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let bus: DBusConnection
    private let logger: Logger
    private let runtimeDirectory: String?
    private let handler: @Sendable (SystemUIEvent) -> Void
    private var machine = SystemUIStateMachine()
    private var timer: EventLoop.Timer?
    private var parts: Parts?
    /// What comes while actions are carried out: at most what the handler answers to one wish.
    private var queue: [SystemUIStateMachine.Event] = []
    private var isHandling = false

    private struct Parts {
        let images: [ImageFiles]
        let notification: NotificationPresenter
        let newcomer: NotificationPresenter
        let tray: StatusNotifierItem
        let menu: MenuService
    }

    /// A user interface that shows nothing before `start`.
    ///
    /// - Parameters:
    ///   - bus: The user's session bus, connected or not.
    ///   - runtimeDirectory: Where pictures are put for the programs that show them; by default `XDG_RUNTIME_DIR`. Without it, or where it
    ///     cannot be written, icons of the theme take their place.
    ///   - handler: Called on the loop, in order.
    public init(
        bus: DBusConnection, logger: Logger,
        runtimeDirectory: String? = getenv("XDG_RUNTIME_DIR").map { String(cString: $0) },
        handler: @escaping @Sendable (SystemUIEvent) -> Void
    ) {
        self.bus = bus
        loop = bus.loop
        self.logger = logger
        self.runtimeDirectory = runtimeDirectory
        self.handler = handler
    }

    /// Begins to watch for notification servers and trays. No effect when it has begun.
    ///
    /// - Throws: `DBusError` when the bus refuses to tell of names, or the tray icon's objects are exported already.
    public func start() async throws(DBusError) {
        guard parts == nil else { return }
        let parts = makeParts()
        self.parts = parts
        do {
            try await parts.menu.start()
            try await parts.tray.start()
            try await parts.notification.start()
            try await parts.newcomer.start()
        } catch {
            await stop()
            throw error
        }
    }

    /// Removes everything from the desktop. `start` shows it again.
    public func stop() async {
        guard let old = parts else { return }
        parts = nil
        if machine.isBrowsing { handler(.browseNearby(false)) }
        await old.newcomer.stop()
        await old.notification.stop()
        await old.tray.stop()
        await old.menu.stop()
        for images in old.images { await images.removeAll() }
        timer?.cancel()
        timer = nil
        machine = SystemUIStateMachine()
    }

    /// What is so from now on.
    public func update(_ state: SystemUIState) { handle(.stateChanged(state)) }

    /// What is nearby from now on.
    public func update(nearby: SystemUINearby) { handle(.nearbyChanged(nearby)) }

    /// A begin was refused, or a transmission was cut: shown for a few seconds.
    ///
    /// - Parameter explanation: Why, and what to do about it, in words for the user (`PTChannelError.explanation`).
    public func failed(_ explanation: String) { handle(.failed(explanation)) }

    /// Shows an event that is not a state, such as an emergency, for a few seconds.
    ///
    /// - Parameters:
    ///   - text: The text for the user.
    ///   - isUrgent: Whether it stays until the user has seen it.
    public func announce(_ text: String, isUrgent: Bool = false) { handle(.announced(text, isUrgent: isUrgent)) }

    private func handle(_ event: SystemUIStateMachine.Event) {
        guard let parts else { return }
        // A wish that is refused at once fails while its actions are carried out, and what it shows comes last.
        queue.append(event)
        guard !isHandling else { return }
        isHandling = true
        while !queue.isEmpty {
            for action in machine.handle(queue.removeFirst(), at: .now) { perform(action, parts) }
        }
        isHandling = false
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.handle(.deadline) } }
        }
    }

    private func perform(_ action: SystemUIStateMachine.Action, _ parts: Parts) {
        switch action {
        case .notification(let view): parts.notification.assumeIsolated { $0.show(view) }
        case .newcomer(let view): parts.newcomer.assumeIsolated { $0.show(view) }
        case .tray(let view): parts.tray.assumeIsolated { $0.show(view) }
        case .menu(let view): parts.menu.assumeIsolated { $0.show(view) }
        case .tell(let wish): handler(wish)
        }
    }

    private func makeParts() -> Parts {
        // Two each: the one that is shown, and the one before it, which may still be loading.
        let faces = ImageFiles(
            runtimeDirectory: runtimeDirectory, label: "speakers", countMax: 2, loop: loop, logger: logger)
        let icons = ImageFiles(
            runtimeDirectory: runtimeDirectory, label: "channels", countMax: 2, loop: loop, logger: logger)
        return Parts(
            images: [faces, icons],
            notification: NotificationPresenter(bus: bus, images: faces, logger: logger) { [weak self] event in
                self?.assumeIsolated { ui in
                    switch event {
                    case .gone: ui.handle(.notificationGone)
                    case .clicked: ui.handle(.talkClicked)
                    }
                }
            },
            newcomer: NotificationPresenter(bus: bus, images: faces, logger: logger) { [weak self] event in
                self?.assumeIsolated { ui in
                    switch event {
                    case .gone: ui.handle(.newcomerGone)
                    case .clicked(let key, let shown): ui.handle(.newcomerClicked(key: key, after: shown))
                    }
                }
            },
            tray: StatusNotifierItem(SystemUIStateMachine.initialTray, bus: bus, images: icons, logger: logger) {
                [weak self] in self?.assumeIsolated { $0.handle(.talkClicked) }
            },
            menu: MenuService(SystemUIStateMachine.initialMenu, bus: bus) { [weak self] event in
                self?.assumeIsolated { ui in
                    switch event {
                    case .clicked(MenuLayout.Item.talk.rawValue): ui.handle(.talkClicked)
                    case .clicked(MenuLayout.Item.leave.rawValue): ui.handle(.leaveClicked)
                    case .clicked(MenuLayout.Item.create.rawValue): ui.handle(.createClicked)
                    case .clicked(let number): ui.handle(.nearbyClicked(number))
                    case .nearbyOpened: ui.handle(.nearbyOpened)
                    case .nearbyClosed: ui.handle(.nearbyClosed)
                    }
                }
            })
    }
}
