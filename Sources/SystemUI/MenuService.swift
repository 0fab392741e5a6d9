// The tray icon's menu, served as com.canonical.dbusmenu.
import DBus
import Reactor

/// Serves a menu of fixed lines whose labels change; hosts are told what changed.
actor MenuService {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// Where it is.
    static let path: DBusObjectPath = "/StatusNotifierItem/Menu"
    static let interface = "com.canonical.dbusmenu"
    /// The most events that one call may bring: a hand makes one.
    private static let eventCountMax = 16

    private let bus: DBusConnection
    private let clicked: @Sendable (MenuLayout.Item) -> Void
    private var layout: MenuLayout
    /// Counts changes, for hosts that compare.
    private var revision: UInt32 = 1
    private var isExported = false
    /// Whether anybody has read the menu, and so has something to update.
    private var hasReader = false

    /// A menu that nobody can see yet. `clicked` is called on the loop, for lines that can be clicked.
    init(_ view: MenuView, bus: DBusConnection, clicked: @escaping @Sendable (MenuLayout.Item) -> Void) {
        layout = MenuLayout(view)
        self.bus = bus
        loop = bus.loop
        self.clicked = clicked
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
        let changes = layout.changes(since: old)
        guard !changes.isEmpty else { return }
        revision &+= 1
        guard hasReader else { return }
        // Without a bus there is nobody to tell.
        bus.assumeIsolated { bus in
            try? bus.emitSignal(
                "ItemsPropertiesUpdated", of: Self.interface, at: Self.path,
                [.array(MenuLayout.itemType, changes), .array(.structure([.int32, .array(.string)]), [])])
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
                // The lines are always what they should be.
                "AboutToShow": { _ in [.boolean(false)] },
                "AboutToShowGroup": { _ in [.array(.int32, []), .array(.int32, [])] },
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
        guard let value = MenuLayout.Item(rawValue: identifier).flatMap({ layout.properties[$0] })?[name] else {
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

    /// Returns whether there is such an item.
    private func handle(_ identifier: Int32, _ event: String) -> Bool {
        guard let item = MenuLayout.Item(rawValue: identifier) else { return false }
        if event == "clicked", layout.properties[item]?["enabled"] == .boolean(true) { clicked(item) }
        return true
    }
}
