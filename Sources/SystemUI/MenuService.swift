// The tray icon's menu, served as com.canonical.dbusmenu.
import DBus
import Reactor

/// Serves a menu, and sends changes to its hosts.
actor MenuService {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// Where it is.
    static let path: DBusObjectPath = "/StatusNotifierItem/Menu"
    static let interface = "com.canonical.dbusmenu"
    /// The most events that one call may bring: a hand makes one.
    private static let eventCountMax = 16

    private let bus: DBusConnection
    /// What somebody does in it.
    enum Event: Sendable {
        /// A click on the line of that number, which can be clicked.
        case clicked(Int32)
        /// The submenu of channels nearby is about to be shown, or is.
        case nearbyOpened
        case nearbyClosed
    }

    private let handler: @Sendable (Event) -> Void
    private var layout: MenuLayout
    /// Counts changes, for hosts that compare.
    private var revision: UInt32 = 1
    private var isExported = false
    /// Whether anybody has read the menu, and so has something to update.
    private var hasReader = false

    /// A menu that nobody can see yet. `handler` is called on the loop.
    init(_ view: MenuView, bus: DBusConnection, handler: @escaping @Sendable (Event) -> Void) {
        layout = MenuLayout(view)
        self.bus = bus
        loop = bus.loop
        self.handler = handler
    }

    /// Puts the menu on the bus.
    func start() async throws(DBusError) {
        try await bus.export([try export()], at: Self.path)
        isExported = true
    }

    /// Takes it back.
    func stop() async {
        if isExported { await bus.unexport(at: Self.path) }
        isExported = false
        hasReader = false
    }

    /// The lines from now on.
    func show(_ view: MenuView) {
        let old = layout
        layout = MenuLayout(view)
        let (changes, removals) = (layout.changes(since: old), layout.removals(since: old))
        let moves = layout.moves(since: old)
        guard !changes.isEmpty || !removals.isEmpty || !moves.isEmpty else { return }
        revision &+= 1
        guard hasReader else { return }
        // Without a bus there is nobody to tell.
        bus.assumeIsolated { [revision] bus in
            if !changes.isEmpty || !removals.isEmpty {
                try? bus.emitSignal(
                    "ItemsPropertiesUpdated", of: Self.interface, at: Self.path,
                    [.array(MenuLayout.itemType, changes), .array(MenuLayout.namesType, removals)])
            }
            for parent in moves {
                try? bus.emitSignal(
                    "LayoutUpdated", of: Self.interface, at: Self.path, [.uint32(revision), .int32(parent)])
            }
        }
    }

    // MARK: Calls

    private func export() throws(DBusError) -> DBusExport {
        try DBusExport(
            Self.declaration,
            properties: [
                "Version": .uint32(3), "TextDirection": .string("ltr"), "Status": .string("normal"),
                "IconThemePath": .strings([]),
            ],
            methods: [
                "GetLayout": { [weak self] in try await self?.getLayout($0) ?? [] },
                "GetGroupProperties": { [weak self] in try await self?.getGroupProperties($0) ?? [] },
                "GetProperty": { [weak self] in try await self?.getProperty($0) ?? [] },
                "Event": { [weak self] in try await self?.event($0) ?? [] },
                "EventGroup": { [weak self] in try await self?.eventGroup($0) ?? [] },
                // The lines are always what they should be; what opening changes in them is told by signals.
                "AboutToShow": { [weak self] call in
                    await self?.isAboutToShow([try call.arguments.argument(0)])
                    return [.boolean(false)]
                },
                "AboutToShowGroup": { [weak self] call in
                    await self?.isAboutToShow(Set(call.arguments[0].arrayValue?.compactMap { $0.get() } ?? []))
                    return [.array(.int32, []), .array(.int32, [])]
                },
            ])
    }

    private func getLayout(_ call: DBusMethodCall) throws -> [DBusValue] {
        let parent: Int32 = try call.arguments.argument(0)
        let depth: Int32 = try call.arguments.argument(1)
        let names: [String] = try call.arguments.argument(2)
        guard let tree = layout.tree(from: parent, depth: depth, names: Set(names)) else {
            throw DBusErrorReply.invalidArguments("the menu has no item \(parent)")
        }
        hasReader = true
        return [.uint32(revision), tree]
    }

    private func getGroupProperties(_ call: DBusMethodCall) throws -> [DBusValue] {
        let identifiers: [Int32] = try call.arguments.argument(0)
        let names: [String] = try call.arguments.argument(1)
        hasReader = true
        return [.array(MenuLayout.itemType, layout.items(Set(identifiers), names: Set(names)))]
    }

    private func getProperty(_ call: DBusMethodCall) throws -> [DBusValue] {
        let identifier: Int32 = try call.arguments.argument(0)
        let name: String = try call.arguments.argument(1)
        guard let value = layout.properties[identifier]?[name] else {
            throw DBusErrorReply.invalidArguments("the menu has no item \(identifier) with such a property")
        }
        hasReader = true
        return [.variant(value)]
    }

    private func event(_ call: DBusMethodCall) throws -> [DBusValue] {
        let identifier: Int32 = try call.arguments.argument(0)
        guard handle(identifier, try call.arguments.argument(1)) else {
            throw DBusErrorReply.invalidArguments("the menu has no item \(identifier)")
        }
        return []
    }

    private func eventGroup(_ call: DBusMethodCall) throws -> [DBusValue] {
        let events = call.arguments[0].arrayValue ?? []
        guard events.count <= Self.eventCountMax else {
            throw DBusErrorReply.limitsExceeded("at most \(Self.eventCountMax) events in one call")
        }
        var unknown: [DBusValue] = []
        for case .structure(let fields) in events {
            let identifier: Int32 = try fields.argument(0)
            if !handle(identifier, try fields.argument(1)) { unknown.append(.int32(identifier)) }
        }
        guard unknown.isEmpty || unknown.count < events.count else {
            throw DBusErrorReply.invalidArguments("the menu has none of these items")
        }
        return [.array(.int32, unknown)]
    }

    private func isAboutToShow(_ identifiers: Set<Int32>) {
        if identifiers.contains(MenuLayout.Item.nearby.rawValue) { handler(.nearbyOpened) }
    }

    /// Returns whether there is such an item.
    private func handle(_ identifier: Int32, _ event: String) -> Bool {
        guard let properties = layout.properties[identifier] else { return false }
        switch (event, identifier) {
        case ("clicked", MenuLayout.Item.nearby.rawValue): break
        case ("clicked", _): if properties["enabled"] == .boolean(true) { handler(.clicked(identifier)) }
        case ("opened", MenuLayout.Item.nearby.rawValue): handler(.nearbyOpened)
        case ("closed", MenuLayout.Item.nearby.rawValue), ("closed", MenuLayout.Item.root.rawValue):
            handler(.nearbyClosed)
        default: break
        }
        return true
    }
}
