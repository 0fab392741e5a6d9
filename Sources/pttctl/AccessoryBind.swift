// pttctl accessory bind: what a control does.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl accessory bind`.
struct AccessoryBind: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bind", abstract: "Set what a control does; without a control, show what each does.",
        discussion: """
            Actions: \(ActionName.forPeople). Give a command in quotes, 'command: notify-send "Hello"'; it runs in a \
            user's daemon only. The binding is remembered.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name, id or address, as 'pttctl accessory list' shows them.", completion: .accessories)
    var accessory: String
    @Argument(help: "The control, such as 'ptt' or 'soft1'.", completion: .controls)
    var control: String?
    @Argument(help: "What it does.", completion: .list(ActionName.plainOnes))
    var action: String?
    @Flag(help: "Print the accessory as JSON, for scripts.") var json = false

    func validate() throws {
        guard let control else { return }
        guard let action else {
            throw ValidationError("Give what '\(control.plain(limit: 64))' does: \(ActionName.forPeople).")
        }
        try ActionName.check(action)
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            let chosen = try ChosenAccessory.find(accessory, in: await daemon.snapshot)
            guard let control, let action else {
                if json { return Console.say(try jsonText(chosen.properties)) }
                return Self.lines(chosen).forEach { Console.say($0) }
            }
            try Self.check(control, of: chosen)
            try await daemon.bind(control, to: action, of: chosen.path)
            let now = try await chosen.again(daemon)
            if json { return Console.say(try jsonText(now)) }
            Console.say("\(control) of \(chosen.title): \((now.bindings[control] ?? action).plain())")
        }
    }

    /// Refuses a control that it has not, when it is known which it has.
    static func check(_ control: String, of chosen: ChosenAccessory) throws {
        let controls = chosen.properties.bindings.keys.sorted()
        guard !controls.isEmpty, !controls.contains(control) else { return }
        let hint = NearestName.hint(control, among: controls).plain()
        throw Failure(
            "\(chosen.title) has no control '\(control.plain(limit: 64))'; \(hint)it has: "
                + controls.map { $0.plain(limit: 64) }.joined(separator: ", "))
    }

    static func lines(_ chosen: ChosenAccessory) -> [String] {
        let bindings = chosen.properties.bindings.sorted { $0.key < $1.key }
        guard !bindings.isEmpty else {
            return ["\(chosen.title): its controls are known only after it is recognised; press it"]
        }
        let width = max(8, bindings.map { $0.key.plain(limit: 64).columns }.max() ?? 0)
        return ["\(chosen.title):"]
            + bindings.map { "  \($0.key.plain(limit: 64).fitted(width))  \($0.value.plain())" }
            + [
                "Another: pttctl accessory bind \(chosen.properties.id.shellWord) CONTROL ACTION; actions: \(ActionName.forPeople)"
            ]
    }
}

/// The actions of controls, in their form on a command line.
enum ActionName {
    /// Those that are one word.
    static let plainOnes = [
        "transmit", "emergency", "channel-up", "channel-down", "nearby-next", "replay-last", "none", "default",
    ]

    static let forPeople = plainOnes.joined(separator: ", ") + ", 'command: PROGRAM ARGUMENTS'"

    static func check(_ action: String) throws {
        guard action.utf8.count <= PTTBusLimits.actionBytes else {
            throw ValidationError(
                "the action has \(action.utf8.count) bytes; at most \(PTTBusLimits.actionBytes) are accepted.")
        }
        if plainOnes.contains(action) { return }
        if action.hasPrefix("command:") {
            guard action.dropFirst("command:".count).contains(where: { !$0.isWhitespace }) else {
                throw ValidationError("'command:' has no program; write it like 'command: notify-send Hello'.")
            }
            return
        }
        throw ValidationError(
            "'\(action.plain(limit: 64))' is not an action; \(NearestName.hint(action, among: plainOnes + ["command:"]))there are: \(forPeople)."
        )
    }
}
