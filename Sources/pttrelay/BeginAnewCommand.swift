// pttrelay begin-anew: another key or empty records for a relay that has lost its own.
import ArgumentParser
import RelayStore
import Settings
import Terminal

/// Makes a part of the state anew.
struct BeginAnewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "begin-anew", abstract: "Give a relay another key, or empty records, when its own are lost.",
        discussion: """
            A relay does not start without its key (identity.pem) or its records (relay.sqlite) once it has had them, since nobody could \
            join it. A copy of the file is the better help. Without one, this makes the file anew, while the relay is stopped; what \
            was there is kept under another name. Then every member needs a new link. With another key the members stay members; with empty \
            records there are none, and no channels until the next start.
            """)

    @Argument(help: "What to make anew: identity or records.") var part: RelayState.Part
    @OptionGroup var relay: RelayOptions

    func run() throws {
        do {
            let directory = relay.stateDirectory(try relay.settings())
            let aside = try RelayState.beginAnew(part, in: directory)
            if let aside { Console.say("what was there is \(aside) now") }
            switch part {
            case .identity:
                Console.say("\(directory) has another key: start the relay, and give every member a new link")
            case .records:
                Console.say(
                    "\(directory) has empty records: start the relay with its channels, and invite every member")
            }
        } catch {
            Console.complain("pttrelay: \(error)")
            throw ExitCode.failure
        }
    }
}

extension RelayState.Part: ExpressibleByArgument {}
