// pttrelay begin-anew: a new key or empty records for a relay that has lost its own.
import ArgumentParser
import RelayStore
import Settings
import Terminal

/// Replaces a part of the state.
struct BeginAnewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "begin-anew", abstract: "Give a relay another key, or empty records, when its own are lost.",
        discussion: """
            A relay that has had a key (identity.pem) and records (relay.sqlite) does not start without them, because \
            nobody could join it. Restore a copy of the file if you can. Without a copy, this command creates the file \
            again while the relay is stopped; the old file is kept under another name. Then every member needs a new \
            link. With a new key the members stay members; with empty records there are no members, and no channels \
            until the next start.
            """)

    @Argument(help: "What to replace: identity or records.") var part: RelayState.Part
    @OptionGroup var relay: RelayOptions

    func run() throws {
        try StartFailure.reporting({ _ in .failure }) {
            let directory = relay.stateDirectory(try relay.settings())
            let aside = try RelayState.beginAnew(part, in: directory)
            if let aside { Console.say("the old file is kept as \(aside)") }
            switch part {
            case .identity:
                Console.say("\(directory) has a new key: start the relay, and give every member a new link")
            case .records:
                Console.say(
                    "\(directory) has empty records: start the relay with its channels, and invite every member")
            }
        }
    }
}

extension RelayState.Part: ExpressibleByArgument {}
