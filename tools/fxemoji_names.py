"""Captions of fxemoji drawings whose names are neither Unicode's nor a common short name.

The set was drawn for Firefox OS under names of its own, written without separators. Those not
listed here are found by ``emoji_names.py``. Where a name says what another emoji shows (``cat`` is
the cat's face, ``catside`` the cat), the entry here goes first.
"""

NAMES = """
2hearts: two hearts | americasglobe: globe showing americas | anguish: anguished face
anticlockwiseupwardsanddownwardsarrows: counterclockwise arrows button | aok: ok hand
arrowrightwardsdownwards: right arrow curving down | arrowrightwardsupwards: right arrow curving up
asiaaustraliaglobe: globe showing asia australia | backwithleftwardsarrow: back arrow
ballotboxboldcheck: check box with check | banknotedollar: dollar banknote
banknoteeuro: euro banknote | banknotepound: pound banknote | banknoteyen: yen banknote
bellcancellation: bell with slash | blackdownpointingbackhand: backhand index pointing down
blackdownpointingdoublearrow: fast down button | blackleftpointingarrow: reverse button
blackleftpointingbackhand: backhand index pointing left
blackleftpointingdoublearrow: fast reverse button | blackrightpointingarrow: play button
blackrightpointingbackhand: backhand index pointing right
blackrightpointingdoublearrow: fast forward button
blackuppointingbackhand: backhand index pointing up | blackuppointingdoublearrow: fast up button
blackwaving: black flag | blonde: person blond hair | bolt: high voltage
bouquetofflowers: bouquet | bow: bow and arrow | bowing: person bowing | bride: woman with veil
bullhorn: loudspeaker | bunny: rabbit face | bunny-ears: people with bunny ears | bunnyside: rabbit
cancellationx: cross mark | cat: cat face | catside: cat | cellphone: mobile phone
chartdownwardstrend: chart decreasing | chartupwardstrend: chart increasing
chartupwardstrendyen: chart increasing with yen | chilipepper: hot pepper
chineseflag: flag of china | chicken: chicken
clockwisedownupcircledarrows: clockwise vertical arrows
clockwiserightwardsleftwardscirclearrows: repeat button
clockwiserightwardsleftwardscirclearrowsone: repeat single button
clock12oclock: twelve oclock | clock12thirty: twelve thirty | clock1oclock: one oclock
clock1thirty: one thirty | clock2oclock: two oclock | clock2thirty: two thirty
clock3oclock: three oclock | clock3thirty: three thirty | clock4oclock: four oclock
clock4thirty: four thirty | clock5thirty: five thirty | clock6oclock: six oclock
clock6thirty: six thirty | clock7oclock: seven oclock
closedmailboxlowered: closed mailbox with lowered flag
closedmailboxraised: closed mailbox with raised flag | confetti: confetti ball
construct: construction worker | devilhorns: smiling face with horns
diamondshapewithdotinside: diamond with a dot | dissapointedrelief: sad but relieved face
dog: dog face | dogside: dog | doubleexclaimationmark: double exclamation mark
downpointingsmallredtrisngle: red triangle pointed down | dragonhead: dragon face
dragonside: dragon | eightspokedasterix: eight spoked asterisk | endwithleftwardsarrow: end arrow
envelopedownarrowabove: envelope with arrow | europeafricaglobe: globe showing europe africa
evergreen: evergreen tree | exclaimationquestionmark: exclamation question mark
fallingleaf: fallen leaf | fishcakeswirl: fish cake with swirl | fistedhand: oncoming fist
flexbicep: flexed biceps | floppydisk2: floppy disk | folder: file folder
forkknife: fork and knife | franceflag: flag of france | frontfacingchick: front facing baby chick
frown: slightly frowning face | frownmouth: frowning face with open mouth
girlgirl: women holding hands | girlguy: woman and man holding hands | gma: old woman
gpa: old man | greatbritainflag: flag of united kingdom
grin: grinning face | grineyes: grinning face with smiling eyes
grinsquint: grinning squinting face | grinsweat: grinning face with sweat
grintears: face with tears of joy | grinwide: grinning face with big eyes
grinwideeyes: beaming face with smiling eyes | guapimao: person with skullcap
guyguy: men holding hands | hampster: hamster | handheldvideocamera: video camera
hands: raising hands | handup: person raising hand | headmassage: person getting massage
heartarrow: heart with arrow | heartblue: blue heart | heartgreen: green heart
heartpurple: purple heart | heartyellow: yellow heart
heavyexclaimationmarksymbol: red exclamation mark | heavylatincross: latin cross
heavymultiplicationsymbol: multiply | heels: high heeled shoe | high5: raised hand
highspeedtrainbulletnose: bullet train | index: index pointing up | italianflag: flag of italy
japaneseangrymask: ogre | japanflag: flag of japan
kissclosedeyes: kissing face with closed eyes | kisseyes: kissing face with smiling eyes
koreaflag: flag of south korea | leaffluttering: leaf fluttering in wind
left: left arrow | leftmagnifyingglass: magnifying glass
tilted left | leftspeechbubble: left speech bubble | leftthoughtbubble: thought balloon
leftwritinghand: writing hand | leopardside: leopard | lockandkey: locked with key
lowerleftpen: pen | lowerleftpencil: pencil | makeupbag: clutch bag | manltepiececlock:
mantelpiece clock | mansshirt: t shirt | mensrunner: running shoe
mensshoe: mans shoe | meridianglobe: globe with meridians | monkeyhear: hear no evil monkey
monkeysee: see no evil monkey | monkeyspeak: speak no evil monkey | mouse: mouse face
mouseside: mouse | negativesquaredlatincaptiala: a button blood type
negativesquaredlatincaptialb: b button blood type
negativesquaredlatincaptialo: o button blood type | nogesture: person gesturing no
nopiracy: skull and crossbones | notebookdecorativecover: notebook with decorative cover
okgesture: person gesturing ok | oldpersonalcomputer: desktop computer
openfolder: open file folder
openmailboxlowered: open mailbox with lowered flag | openmailboxraised: open mailbox with raised
flag | outbox: outbox tray | page: page facing up | perservere: persevering face
phonerightarrowleft: mobile phone with arrow | pig: pig face | pigside: pig | pigsnout: pig nose
pinkwallet: purse | portablestereo: radio | potablewatersystem: potable water | present:
wrapped gift | raisedhandpartfingers: vulcan salute | raisedhandsfingerssplayed: hand with
fingers splayed | reminder: reminder ribbon | reversehandmiddlefinger: middle finger
reversethumbsdown: thumbs down | reversethumbsup: thumbs up | reversevictoryhand: victory hand
right: right arrow | righthandphone: telephone receiver | rightangerbubble: right anger bubble
rightmagnifyingglass: magnifying glass tilted right | rightspeaker: speaker low volume
rightspeaker3soundwaves: speaker high volume | rightspeechbubble: speech balloon
rightthoughtbubble: thought balloon | ringingbell: bell | russianflag: flag of russia
saggitarius: sagittarius | sandals: womans sandal | screamfear: face screaming in fear
sidewaysleftpointingindex: backhand index pointing left
sidewaysrightpointingindex: backhand index pointing right
sidewaysuppointingindex: backhand index pointing up | silhouetteohjapan: map of japan
sidewaysdownpointingindex: backhand index pointing down
sixpointedstarwithdot: dotted six pointed star | sleuthspy: detective | smallfrown:
slightly frowning face | smallsmile: slightly smiling face
smileeyes: smiling face with smiling eyes | smiletongue: face savoring food
snowmountains: snow capped mountain | soonwithrightarrow: soon arrow | spanishflag: flag of spain
speaker3soundwaves: speaker high volume | speakercancellation: muted speaker
speakeronesoundwave: speaker medium volume | speakerwith1soundwave: speaker medium volume
speechbubble: speech balloon | spurtingwhale: spouting whale | squaredup: up button
stormcloud: cloud with lightning | studiomic: studio microphone
sunraincloud: sun behind rain cloud | sunrays: sun | sweatsplash: sweat droplets
telephonereceiver2: telephone receiver | tennisball: tennis | thoughtbaloon: thought balloon
tiger: tiger face | tigerside: tiger | tongueoutwink: winking face with tongue
tongueoutwink2: squinting face with tongue | topwithupwardsarrow: top arrow
toykotower: tokyo tower | turban: person wearing turban | turnedokhand: ok hand
uppointingsmallredtrisngle: red triangle pointed up | videocasette: videocassette
waitress: person tipping hand | waningbibbousmoon: waning gibbous moon | waving: waving hand
whitedownpointinglefthand: index pointing up | whiteexclaimationmark: white exclamation mark
wiredkeyboard: keyboard | womansshirt: womans clothes
kissing: kissing face | sunglasses: smiling face with sunglasses | darksunglasses: sunglasses
speaker: speaker low volume | smirk: smirking face | hotbeverage: hot beverage
dash: dashing away | dizzy: dizzy | chipmunk: chipmunk | kiss: face blowing a kiss
lefthandphone: telephone receiver | closedbook: closed book | couple: couple with heart
couplekiss: kiss | family: family | ten: keycap ten
heartribbon: heart with ribbon | tie: necktie | tongueout: face with tongue | up: up arrow
down: down arrow | document: page facing up
"""
"""``name: caption`` pairs, apart by bars or line ends; a caption may go on in the next line."""


def read_names(text: str) -> dict[str, str]:
    """The pairs of ``NAMES``."""
    names: dict[str, str] = {}
    last = ""
    for part in text.replace("|", "\n").split("\n"):
        name, colon, words = part.strip().partition(":")
        if colon:
            last, names[name] = name, words.strip()
        elif part.strip():
            names[last] = f"{names[last]} {part.strip()}".strip()
    return names


FXEMOJI = read_names(NAMES)
