// The menu as com.canonical.dbusmenu lays it out. Pure.
import DBus

/// The lines of the menu and their properties. The lines are always the same ones, so a change never moves what a pointer is over.
struct MenuLayout {
    /// A line, by its number on the bus.
    enum Item: Int32, CaseIterable, Sendable {
        case root = 0
        case channel = 1
        case status = 2
        case separator = 3
        case talk = 4
        case leave = 5
    }

    /// `(ia{sv})`: an item and properties of it.
    static let itemType = DBusType.structure([.int32, .dictionary(key: .string, value: .variant)])

    /// What hosts are told of each item; `enabled` always, so that its change can be told.
    let properties: [Item: [String: DBusValue]]

    /// The menu that shows `view`.
    init(_ view: MenuView) {
        func line(_ label: String, enabled: Bool) -> [String: DBusValue] {
            ["label": .string(DisplayText.menuLabel(label)), "enabled": .boolean(enabled)]
        }
        properties = [
            .root: ["children-display": .string("submenu")],
            .channel: line(view.channelLine, enabled: false),
            .status: line(view.statusLine, enabled: false),
            .separator: ["type": .string("separator")],
            .talk: line(view.action.label, enabled: view.canTalk),
            .leave: line("Leave channel", enabled: view.canLeave),
        ]
    }

    /// The items that are different from those of `old`, each with the properties that are.
    func changes(since old: MenuLayout) -> [DBusValue] {
        Item.allCases.compactMap { item in
            let before = old.properties[item] ?? [:]
            let changed = (properties[item] ?? [:]).filter { before[$0.key] != $0.value }
            return changed.isEmpty ? nil : Self.value(item, changed)
        }
    }

    /// The items among `identifiers` (none: all), with the properties among `names` (none: all).
    func items(_ identifiers: Set<Int32>, names: Set<String>) -> [DBusValue] {
        Item.allCases.filter { identifiers.isEmpty || identifiers.contains($0.rawValue) }
            .map { Self.value($0, selected($0, names)) }
    }

    /// `(ia{sv}av)`: the item and, unless `depth` is 0, what is below it; nil when there is no such item.
    func tree(from identifier: Int32, depth: Int32, names: Set<String>) -> DBusValue? {
        guard let item = Item(rawValue: identifier) else { return nil }
        let children = item == .root && depth != 0 ? Item.allCases.filter { $0 != .root } : []
        return .structure([
            .int32(item.rawValue), .properties(selected(item, names)),
            .array(
                .variant, children.compactMap { tree(from: $0.rawValue, depth: 0, names: names) }.map { .variant($0) }),
        ])
    }

    private func selected(_ item: Item, _ names: Set<String>) -> [String: DBusValue] {
        let all = properties[item] ?? [:]
        return names.isEmpty ? all : all.filter { names.contains($0.key) }
    }

    private static func value(_ item: Item, _ properties: [String: DBusValue]) -> DBusValue {
        .structure([.int32(item.rawValue), .properties(properties)])
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
                    .init("removedProps", .array(.structure([.int32, .array(.string)]))),
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
