// The tray icon, served as org.kde.StatusNotifierItem. No rules.
import DBus
import Glibc
import Logging
import MonotonicTime
import Reactor
import Synchronization

/// A tray icon that registers with whatever watcher is on the bus, and again with the next one.
actor StatusNotifierItem {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    static let interface = "org.kde.StatusNotifierItem"
    static let path: DBusObjectPath = "/StatusNotifierItem"
    private static let watcher = "org.kde.StatusNotifierWatcher"
    private static let timeout = Duration.seconds(5)
    private static let count = Atomic<Int>(0)

    private let bus: DBusConnection
    private let images: ImageFiles
    private let logger: Logger
    private let activated: @Sendable () -> Void
    private let name: String
    private var view: TrayView
    private var watch: DBusNameWatch?
    private var ownsName = false
    private var isExported = false
    private var watcherOwner: String?
    /// What is on the bus.
    private var told: [String: DBusValue] = [:]

    /// An icon that nobody can see yet. `activated` is called on the loop, when the icon is clicked.
    init(
        _ view: TrayView, bus: DBusConnection, images: ImageFiles, logger: Logger,
        activated: @escaping @Sendable () -> Void
    ) {
        self.view = view
        self.bus = bus
        loop = bus.loop
        self.images = images
        self.logger = logger
        self.activated = activated
        // The form that the specification gives: the process, and which of its icons.
        let number = Self.count.add(1, ordering: .relaxed).newValue
        name = "\(Self.interface)-\(getpid())-\(number)"
    }

    /// Puts the icon on the bus and watches for watchers.
    func start() async throws(DBusError) {
        told = properties
        try await bus.export([try export(told)], at: Self.path)
        isExported = true
        // What changed meanwhile.
        show(view)
        watch = try await bus.watchName(Self.watcher) { [weak self] owner in
            self?.assumeIsolated { $0.watcherChanged(owner) }
        }
    }

    /// Takes the icon away.
    func stop() async {
        if let watch { await bus.unwatchName(watch) }
        watch = nil
        watcherOwner = nil
        if isExported { await bus.unexport(at: Self.path) }
        isExported = false
        // Giving the name back is how an icon is unregistered.
        await releaseName()
    }

    private func watcherChanged(_ owner: String?) {
        watcherOwner = owner
        if let owner { Task { await register(with: owner) } }
    }

    private func register(with owner: String) async {
        do throws(DBusError) {
            let service = try await serviceName()
            // Stopped meanwhile, or there is another watcher.
            guard watcherOwner == owner else { return }
            try await bus.call(
                destination: owner, path: "/StatusNotifierWatcher", interface: Self.watcher,
                method: "RegisterStatusNotifierItem", arguments: [.string(service)], timeout: Self.timeout,
                startsService: false)
        } catch {
            // The next watcher is asked again; this one is not.
            logger.debug("no tray icon", metadata: ["why": "\(error)"])
        }
    }

    private func serviceName() async throws(DBusError) -> String {
        if ownsName { return name }
        do throws(DBusError) {
            try await bus.requestName(name)
            ownsName = true
            if !isExported { await releaseName() }
            return name
        } catch .nameTaken {
            // Process numbers repeat in containers; the bus's own names do not.
            guard let unique = await bus.uniqueName else { throw .disconnected }
            return unique
        }
    }

    private func releaseName() async {
        guard ownsName else { return }
        ownsName = false
        try? await bus.releaseName(name)
    }

    // MARK: What is shown

    /// The icon from now on.
    func show(_ new: TrayView) {
        view = new
        guard isExported else { return }
        let old = told
        let now = properties
        told = now
        let isSeen = watcherOwner != nil
        bus.assumeIsolated { bus in
            do throws(DBusError) {
                try bus.setProperties(now, of: Self.interface, at: Self.path)
                // Where there is no tray there is nobody to tell.
                for (property, signal) in Self.signals where isSeen && old[property] != now[property] {
                    try bus.emitSignal(
                        signal, of: Self.interface, at: Self.path,
                        property == "Status" ? [now[property] ?? .string("")] : [])
                }
            } catch .disconnected {
                // Whoever comes with the bus reads the properties.
            } catch {
                logger.error("tray icon not changed", metadata: ["error": "\(error)"])
            }
        }
    }

    private static let signals = [
        ("Title", "NewTitle"), ("IconName", "NewIcon"),
        ("AttentionIconName", "NewAttentionIcon"), ("ToolTip", "NewToolTip"), ("Status", "NewStatus"),
    ]

    private var properties: [String: DBusValue] {
        let picture = view.image.flatMap { image in images.assumeIsolated { $0.picture(of: image) } }?.iconName
        let activity = view.activity.iconName
        // What goes on takes the place of the channel's picture, not a corner of it: few hosts draw overlays.
        let icon = view.activity == .idle ? picture ?? activity : activity
        let noPixels = DBusValue.array(Self.pixelsType, [])
        let badge = ActivityBadge.pixmap(of: view.activity)
        return [
            "Category": .string("Communications"), "Id": .string("pttd"), "Title": .string(view.title),
            "Status": .string(view.status.rawValue), "WindowId": .int32(0), "IconThemePath": .string(""),
            "Menu": .objectPath(MenuService.path), "ItemIsMenu": .boolean(false), "IconName": .string(icon),
            "IconPixmap": badge, "OverlayIconName": .string(""), "OverlayIconPixmap": noPixels,
            "AttentionIconName": .string(activity), "AttentionIconPixmap": badge, "AttentionMovieName": .string(""),
            "ToolTip": .structure([
                .string(picture ?? icon), noPixels, .string(view.title), .string(DisplayText.escapingMarkup(view.text)),
            ]),
        ]
    }

    // MARK: Calls

    private func export(_ properties: [String: DBusValue]) throws(DBusError) -> DBusExport {
        try DBusExport(
            Self.declaration, properties: properties,
            methods: [
                "Activate": { [weak self] _ in
                    await self?.activate()
                    return []
                },
                // Leaving a channel by a slip of the middle button would be worse than nothing.
                "SecondaryActivate": { _ in [] },
                // The host shows the menu.
                "ContextMenu": { _ in [] },
                "Scroll": { _ in [] },
            ])
    }

    private func activate() { activated() }

    private static let pixelsType = ActivityBadge.pixelsType

    /// The interface (StatusNotifierItem specification). Its own signals report changes.
    static let declaration = DBusInterface(
        interface,
        methods: [
            .init("ContextMenu", in: [.init("x", .int32), .init("y", .int32)]),
            .init("Activate", in: [.init("x", .int32), .init("y", .int32)]),
            .init("SecondaryActivate", in: [.init("x", .int32), .init("y", .int32)]),
            .init("Scroll", in: [.init("delta", .int32), .init("orientation", .string)]),
        ],
        signals: [
            .init("NewTitle"), .init("NewIcon"), .init("NewAttentionIcon"), .init("NewOverlayIcon"),
            .init("NewToolTip"), .init("NewStatus", [.init("status", .string)]),
        ],
        properties: [
            ("Category", .string), ("Id", .string), ("Title", .string), ("Status", .string), ("WindowId", .int32),
            ("IconThemePath", .string), ("Menu", .objectPath), ("ItemIsMenu", .boolean), ("IconName", .string),
            ("IconPixmap", .array(pixelsType)), ("OverlayIconName", .string), ("OverlayIconPixmap", .array(pixelsType)),
            ("AttentionIconName", .string), ("AttentionIconPixmap", .array(pixelsType)),
            ("AttentionMovieName", .string),
            ("ToolTip", .structure([.string, .array(pixelsType), .string, .string])),
        ].map { DBusInterface.Property($0, $1, changeSignal: .none) })
}
