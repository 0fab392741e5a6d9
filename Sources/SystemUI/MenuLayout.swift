// The menu as com.canonical.dbusmenu lays it out. Pure.
import DBus

/// The lines of the menu and their properties. The fixed ones are always the same, so a change never moves what a pointer is over; the
/// lines of channels nearby follow the rules of `NearbySubmenu`.
struct MenuLayout {
    /// A fixed line, by its number on the bus.
    enum Item: Int32, CaseIterable, Sendable {
        case root = 0
        case channel = 1
        case status = 2
        case separator = 3
        case talk = 4
        case leave = 5
        case secondSeparator = 6
        case nearby = 7
        case create = 8
        case nearbyHeader = 9
    }

    /// `(ia{sv})`: an item and properties of it.
    static let itemType = DBusType.structure([.int32, .dictionary(key: .string, value: .variant)])
    /// `(ias)`: an item and names of properties.
    static let namesType = DBusType.structure([.int32, .array(.string)])

    /// The properties of each item for hosts. `enabled` is always present, so that its change can be sent.
    let properties: [Int32: [String: DBusValue]]
    /// The lines below each item that has some, in order.
    let children: [Int32: [Int32]]

    /// The menu that shows `view`.
    init(_ view: MenuView) {
        func line(_ label: String, enabled: Bool) -> [String: DBusValue] {
            ["label": .string(DisplayText.menuLabel(label)), "enabled": .boolean(enabled)]
        }
        let submenu = ["children-display": DBusValue.string("submenu")]
        let fixed: [Item: [String: DBusValue]] = [
            .root: submenu,
            .channel: line(view.channelLine, enabled: false),
            .status: line(view.statusLine, enabled: false),
            .separator: ["type": .string("separator")],
            .talk: line(view.action.label, enabled: view.canTalk),
            .leave: line("Leave channel", enabled: view.canLeave),
            .secondSeparator: ["type": .string("separator")],
            .nearby: line("Channels nearby", enabled: true).merging(submenu) { own, _ in own },
            .create: line("New channel here", enabled: true),
            .nearbyHeader: line(view.nearby.header, enabled: false),
        ]
        var properties = Dictionary(uniqueKeysWithValues: fixed.map { ($0.key.rawValue, $0.value) })
        for channel in view.nearby.lines {
            properties[channel.number] = line(channel.label, enabled: channel.isEnabled)
            if channel.isLocked { properties[channel.number]?["icon-name"] = .string("changes-prevent-symbolic") }
        }
        self.properties = properties
        let top: [Item] = [.channel, .status, .separator, .talk, .leave, .secondSeparator, .nearby, .create]
        children = [
            Item.root.rawValue: top.map(\.rawValue),
            Item.nearby.rawValue: [Item.nearbyHeader.rawValue] + view.nearby.lines.map(\.number),
        ]
    }

    /// The items that `old` has, too, and that are different there, each with the properties that are.
    func changes(since old: MenuLayout) -> [DBusValue] {
        properties.keys.sorted().compactMap { item in
            guard let before = old.properties[item] else { return nil }
            let changed = (properties[item] ?? [:]).filter { before[$0.key] != $0.value }
            return changed.isEmpty ? nil : Self.value(item, changed)
        }
    }

    /// The items that `old` has, too, each with the names of properties that it has no more.
    func removals(since old: MenuLayout) -> [DBusValue] {
        properties.keys.sorted().compactMap { item in
            let names = (old.properties[item] ?? [:]).keys.filter { properties[item]?[$0] == nil }.sorted()
            return names.isEmpty ? nil : .structure([.int32(item), .strings(names)])
        }
    }

    /// The items below which there are other lines than in `old`.
    func moves(since old: MenuLayout) -> [Int32] {
        children.keys.sorted().filter { children[$0] != old.children[$0] }
    }

    /// The items among `identifiers` (none: all), with the properties among `names` (none: all).
    func items(_ identifiers: Set<Int32>, names: Set<String>) -> [DBusValue] {
        properties.keys.sorted().filter { identifiers.isEmpty || identifiers.contains($0) }
            .map { Self.value($0, selected($0, names)) }
    }

    /// `(ia{sv}av)`: the item and what is below it, `depth` levels deep (negative: all); nil when there is no such
    /// item.
    func tree(from identifier: Int32, depth: Int32, names: Set<String>) -> DBusValue? {
        guard properties[identifier] != nil else { return nil }
        let below = depth == 0 ? [] : children[identifier] ?? []
        return .structure([
            .int32(identifier), .properties(selected(identifier, names)),
            .array(
                .variant,
                below.compactMap { tree(from: $0, depth: depth < 0 ? depth : depth - 1, names: names) }
                    .map { .variant($0) }),
        ])
    }

    private func selected(_ item: Int32, _ names: Set<String>) -> [String: DBusValue] {
        let all = properties[item] ?? [:]
        return names.isEmpty ? all : all.filter { names.contains($0.key) }
    }

    private static func value(_ item: Int32, _ properties: [String: DBusValue]) -> DBusValue {
        .structure([.int32(item), .properties(properties)])
    }
}

extension MenuService {
    /// The interface, as its users declare it (libdbusmenu, com.canonical.dbusmenu version 3).
    static let declaration = DBusInterface(
        interface,
        methods: [
            .init(
                "GetLayout",
                in: [
                    .init("parentId", .int32), .init("recursionDepth", .int32), .init("propertyNames", .array(.string)),
                ],
                out: [
                    .init("revision", .uint32),
                    .init(
                        "layout",
                        .structure([.int32, .dictionary(key: .string, value: .variant), .array(.variant)])),
                ]),
            .init(
                "GetGroupProperties",
                in: [.init("ids", .array(.int32)), .init("propertyNames", .array(.string))],
                out: [.init("properties", .array(MenuLayout.itemType))]),
            .init(
                "GetProperty", in: [.init("id", .int32), .init("name", .string)], out: [.init("value", .variant)]),
            .init(
                "Event",
                in: [
                    .init("id", .int32), .init("eventId", .string), .init("data", .variant),
                    .init("timestamp", .uint32),
                ]),
            .init(
                "EventGroup", in: [.init("events", .array(.structure([.int32, .string, .variant, .uint32])))],
                out: [.init("idErrors", .array(.int32))]),
            .init("AboutToShow", in: [.init("id", .int32)], out: [.init("needUpdate", .boolean)]),
            .init(
                "AboutToShowGroup", in: [.init("ids", .array(.int32))],
                out: [.init("updatesNeeded", .array(.int32)), .init("idErrors", .array(.int32))]),
        ],
        signals: [
            .init(
                "ItemsPropertiesUpdated",
                [
                    .init("updatedProps", .array(MenuLayout.itemType)),
                    .init("removedProps", .array(MenuLayout.namesType)),
                ]),
            .init("LayoutUpdated", [.init("revision", .uint32), .init("parent", .int32)]),
            .init("ItemActivationRequested", [.init("id", .int32), .init("timestamp", .uint32)]),
        ],
        properties: [
            .init("Version", .uint32, changeSignal: .constant),
            .init("TextDirection", .string, changeSignal: .constant),
            .init("Status", .string, changeSignal: .constant),
            .init("IconThemePath", .array(.string), changeSignal: .constant),
        ])
}
